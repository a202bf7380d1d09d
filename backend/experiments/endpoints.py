"""Experiments over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from backend.accounts.access import Person
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import NotFound, Problem
from backend.experiments import repository
from backend.experiments.schemas import (
    ExperimentChange,
    ExperimentDetail,
    ExperimentOut,
    NewExperiment,
)
from backend.idempotency import KeyHeader, claim_key
from backend.ids import new_id
from backend.models import Experiment
from backend.paging import Limit, Page, decode_cursor, encode_cursor
from backend.runs import files, summaries
from backend.runs import repository as runs_repository
from backend.runs.resuming import refuse_while_awaited
from backend.runs.schemas import Deleted
from backend.slots import leases

MAX_RUNS_SHOWN = 200

router = APIRouter(tags=["experiments"])


async def _visible(experiment_id: str, person: Person, session: SessionOf) -> Experiment:
    experiment = await repository.visible(session, person, experiment_id)
    if experiment is None:
        raise NotFound("experiment", experiment_id)
    return experiment


VisibleExperiment = Annotated[Experiment, Depends(_visible)]
"""The experiment in the path, for whoever may see it: its owner and admins."""


@router.get("/experiments")
async def list_experiments(
    person: Person, session: SessionOf, limit: Limit = 50, cursor: str | None = None
) -> Page[ExperimentOut]:
    """Experiments, newest first."""
    after = decode_cursor(cursor) if cursor else None
    items = await repository.page(session, person, limit + 1, after)
    shown = items[:limit]
    more = len(items) > limit
    return Page(
        items=shown, next=encode_cursor(shown[-1].created_at, shown[-1].id) if more else None
    )


@router.post("/experiments", status_code=201)
async def create_experiment(
    body: NewExperiment,
    person: Person,
    session: SessionOf,
    now: Now,
    idempotency_key: KeyHeader = None,
) -> ExperimentOut:
    """Make an experiment. The same ``Idempotency-Key`` makes one, however often it is sent."""
    new = new_id("e")
    if idempotency_key is not None:
        request = ["experiment", body.title, body.notes]
        earlier = await claim_key(
            session, person.id, idempotency_key, request, now, experiment_id=new
        )
        known = await repository.visible(session, person, earlier) if earlier else None
        if known is not None:
            return await repository.described(session, known)
    experiment = await repository.add(session, new, person.id, body.title, body.notes, now)
    created = await repository.described(session, experiment)
    await session.commit()
    return created


@router.get("/experiments/{experiment_id}")
async def read_experiment(
    experiment: VisibleExperiment, person: Person, session: SessionOf
) -> ExperimentDetail:
    """One experiment with its newest runs."""
    shown = await repository.described(session, experiment)
    runs = await runs_repository.of_experiment(session, experiment.id, MAX_RUNS_SHOWN)
    summarized = await summaries.summarized(session, person, runs)
    return ExperimentDetail(**shown.model_dump(), runs=summarized)


@router.patch("/experiments/{experiment_id}")
async def change_experiment(
    body: ExperimentChange, experiment: VisibleExperiment, session: SessionOf
) -> ExperimentOut:
    """Change the title or the notes."""
    if body.title is not None:
        experiment.title = body.title
    if body.notes is not None:
        experiment.notes = body.notes
    await session.flush()
    changed = await repository.described(session, experiment)
    await session.commit()
    return changed


@router.delete("/experiments/{experiment_id}")
async def delete_experiment(
    experiment: VisibleExperiment, context: ContextOf, session: SessionOf
) -> Deleted:
    """Delete an experiment with all its runs and their files; refused while one is active."""
    statuses = await repository.locked_runs(session, experiment.id)
    active = [run_id for run_id, status in statuses.items() if status.is_active]
    if active:
        raise Problem(
            409,
            "run-active",
            f"The experiment has active runs ({', '.join(active)}). Nothing was deleted; stop them "
            "first.",
        )
    await leases.refuse_while_held(session, list(statuses))
    await refuse_while_awaited(session, list(statuses))
    attempts = await runs_repository.attempt_ids(session, list(statuses))
    async with files.set_aside(context.settings.home, attempts) as folders:
        for run_id in statuses:
            await runs_repository.remove(session, run_id)
        await repository.remove(session, experiment.id)
        await session.commit()
    return Deleted.model_validate(await files.removed(folders), from_attributes=True)
