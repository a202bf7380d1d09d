"""Runs over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from backend.accounts.access import Person
from backend.controls.changes import request_change, wanted
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import NotFound, Problem
from backend.experiments import repository as experiments_repository
from backend.idempotency import KeyHeader, claim_key
from backend.ids import new_id
from backend.models import Checkpoint
from backend.paging import Limit, Page, decode_cursor, encode_cursor
from backend.runs import files, repository, summaries
from backend.runs.access import ReadableRun, WritableRun
from backend.runs.configs import validated
from backend.runs.creation import add_run
from backend.runs.resuming import refuse_misfit, refuse_while_awaited, resume, usable_checkpoint
from backend.runs.schemas import (
    ConfigBody,
    Deleted,
    Fork,
    LogLineOut,
    LogPage,
    NewRun,
    ResolvedConfig,
    Resume,
    RunDetail,
    RunEventOut,
    RunSummary,
)
from backend.runs.stopping import request_stop
from backend.slots import leases
from backend.storage import beginnings
from lagoon.config import RunConfig
from lagoon.controls import PAUSED
from lagoon.status import RunStatus

router = APIRouter(tags=["runs"])


@router.post("/runs/validate")
async def validate_config(body: ConfigBody, person: Person, session: SessionOf) -> ResolvedConfig:
    """Check a configuration without starting anything; the answer has all defaults filled in."""
    config = await validated(session, body.config)
    return ResolvedConfig(config=config.model_dump(mode="json"))


@router.post("/runs", status_code=201)
async def create_run(
    body: NewRun,
    person: Person,
    session: SessionOf,
    now: Now,
    idempotency_key: KeyHeader = None,
) -> RunDetail:
    """Queue a run. The same ``Idempotency-Key`` makes one run, however often it is sent."""
    run_id = new_id("r")
    if idempotency_key is not None:
        earlier = await claim_key(
            session,
            person.id,
            idempotency_key,
            ["run", body.name, body.experiment_id, body.config],
            now,
            run_id=run_id,
        )
        run = await repository.visible(session, person, earlier) if earlier else None
        if run is not None:
            return await summaries.detailed(session, person, run)
    config = await validated(session, body.config)
    return await _create(body, config, person, session, now, run_id=run_id)


async def _create(
    body: NewRun | Fork,
    config: RunConfig,
    person: Person,
    session: SessionOf,
    now: Now,
    *,
    run_id: str | None = None,
    fork_of: Checkpoint | None = None,
    begins_with: str = "",
) -> RunDetail:
    """A queued run of the person's, in the experiment that the body names."""
    run = await add_run(
        session,
        name=body.name,
        config=config,
        experiment_id=await _experiment_for(body.experiment_id, person, session, now),
        owner_id=person.id,
        by=person.username,
        now=now,
        run_id=run_id,
        fork_of=fork_of,
        begins_with=begins_with,
    )
    created = await summaries.detailed(session, person, run)
    await session.commit()
    return created


async def _experiment_for(id: str | None, person: Person, session: SessionOf, now: Now) -> str:
    if id is None:
        return await experiments_repository.default(session, person.id, now)
    experiment = await experiments_repository.visible(session, person, id)
    if experiment is None:
        raise NotFound("experiment", id)
    return experiment.id


@router.get("/runs")
async def list_runs(
    person: Person,
    session: SessionOf,
    experiment_id: str | None = None,
    status: RunStatus | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Page[RunSummary]:
    """Runs, newest first."""
    runs = await repository.page(
        session,
        person,
        experiment_id=experiment_id,
        status=status,
        limit=limit + 1,
        after=decode_cursor(cursor) if cursor else None,
    )
    shown = runs[:limit]
    more = len(runs) > limit
    return Page(
        items=await summaries.summarized(session, person, shown),
        next=encode_cursor(shown[-1].created_at, shown[-1].id) if more else None,
    )


@router.get(
    "/runs/{run_id}",
    response_model=RunDetail,
    responses={304: {"description": "Nothing has changed."}},
)
async def read_run(
    run: ReadableRun,
    person: Person,
    response: Response,
    session: SessionOf,
    if_none_match: Annotated[str, Header()] = "",
) -> RunDetail | Response:
    """One run. Its ETag changes with everything that happens to it."""
    tag = f'"{run.id}-{run.cursor}"'
    if tag in [each.strip().removeprefix("W/") for each in if_none_match.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return await summaries.detailed(session, person, run)


@router.post("/runs/{run_id}/stop", status_code=202)
async def stop_run(run: WritableRun, person: Person, session: SessionOf, now: Now) -> RunDetail:
    """Ask a run to stop; a run that has not started is stopped at once."""
    await request_stop(session, run, person.username, now)
    await session.flush()
    stopped = await summaries.detailed(session, person, run)
    await session.commit()
    return stopped


@router.post("/runs/{run_id}/resume", status_code=202)
async def resume_run(
    body: Resume, run: WritableRun, person: Person, session: SessionOf, now: Now
) -> RunDetail:
    """Have a run that stopped or failed go on as a new attempt, or a paused one without its pause.

    One that was paused when it stopped goes on without its pause.
    """
    goes = run.desired == "run" and not RunStatus(run.status).is_terminal
    if not (goes and run.is_paused and body.checkpoint_id is None):
        await resume(session, run, body.checkpoint_id, person.username, now)
    if run.is_paused:
        await request_change(session, run, {PAUSED: False}, person.username, now)
    resumed = await summaries.detailed(session, person, run)
    await session.commit()
    return resumed


@router.post("/runs/{run_id}/fork", status_code=201)
async def fork_run(
    body: Fork,
    run: ReadableRun,
    person: Person,
    context: ContextOf,
    session: SessionOf,
    now: Now,
) -> RunDetail:
    """A new run that begins with one of this run's checkpoints, with its own configuration."""
    checkpoint = await usable_checkpoint(session, run, body.checkpoint_id)
    given = body.config
    if given is None:  # what it goes by now, not what it began with
        given = (await wanted(session, run)).config.model_dump(mode="json")
    config = await validated(session, given)
    refuse_misfit(run, checkpoint, config)
    fork_id = new_id("r")
    async with beginnings.held(context.settings.home, checkpoint, fork_id) as path:
        return await _create(
            body,
            config,
            person,
            session,
            now,
            run_id=fork_id,
            fork_of=checkpoint,
            begins_with=path,
        )


@router.delete("/runs/{run_id}")
async def delete_run(run: WritableRun, context: ContextOf, session: SessionOf) -> Deleted:
    """Delete a run with all its data and files; refused while it is active."""
    if RunStatus(run.status).is_active:
        raise Problem(
            409, "run-active", f"The run is {run.status}. Nothing was deleted; stop it first."
        )
    await leases.refuse_while_held(session, [run.id])
    await refuse_while_awaited(session, [run.id])
    attempts = await repository.attempt_ids(session, [run.id])
    async with files.set_aside(context.settings.home, attempts) as folders:
        await repository.remove(session, run.id)
        await session.commit()
    return Deleted.model_validate(await files.removed(folders), from_attributes=True)


@router.get("/runs/{run_id}/events")
async def read_history(run: ReadableRun, session: SessionOf) -> Page[RunEventOut]:
    """The run's history."""
    events = await repository.history(session, run.id)
    return Page(items=[RunEventOut.model_validate(e, from_attributes=True) for e in events])


@router.get("/runs/{run_id}/log")
async def read_log(
    run: ReadableRun,
    session: SessionOf,
    after: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
) -> LogPage:
    """The driver's log: what follows line ``after``, or its tail."""
    lines = await repository.log_lines(session, run.id, after, limit)
    items = [LogLineOut.model_validate(line, from_attributes=True) for line in lines]
    return LogPage(items=items, next_after=items[-1].n if items else after or 0)
