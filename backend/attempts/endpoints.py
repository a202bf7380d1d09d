"""Attempts over HTTP: one endpoint for drivers, the rest for the workers' service token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends

from backend.accounts.access import OwnAttempt, Service
from backend.attempts import repository
from backend.attempts.observations import due_measure, take
from backend.attempts.schemas import (
    AttemptConfig,
    AttemptState,
    DriverToken,
    Observation,
    SubmitFailed,
    Submitted,
)
from backend.controls.changes import as_changes, changes_of
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import NotFound, Problem
from backend.models import Attempt, Run
from backend.paging import Page
from backend.runs import repository as runs_repository
from backend.runs.resuming import settle_beginning
from backend.runs.transitions import move, record
from backend.slots import leases
from backend.text import excerpt, first_line
from backend.tokens import mint
from lagoon.status import RunStatus

router = APIRouter(tags=["attempts"])


@router.get("/attempts/{attempt_id}/config")
async def read_attempt_config(
    attempt: OwnAttempt, context: ContextOf, session: SessionOf
) -> AttemptConfig:
    """The configuration that the driver is to run, and what it may go on from.

    Refused for an attempt that is over.
    """
    if RunStatus(attempt.status).is_terminal:
        raise Problem(
            409, "attempt-over", f"Attempt {attempt.id} is {attempt.status}: nothing is to run."
        )
    run = await session.get_one(Run, attempt.run_id)
    await leases.require(session, attempt)
    home = context.settings.home
    return AttemptConfig(
        run_id=run.id,
        attempt=attempt.number,
        name=run.name,
        config=run.config,
        fencing_token=attempt.fencing_token,
        checkpoints=attempt.candidates,
        owns_checkpoints=attempt.owns_candidates,
        earlier_folders=_earlier_folders(
            attempt, await runs_repository.attempts(session, run.id), home
        ),
        places=await leases.places(session, attempt.id),
        changes=as_changes(await changes_of(session, run.id)),
    )


def _earlier_folders(attempt: Attempt, attempts: Sequence[Attempt], home: Path) -> list[str]:
    """Newest first, back to the last attempt that went on from a checkpoint that somebody chose:
    what was done after that one before is superseded, and is not made again."""
    found: list[str] = []
    following = attempt
    for earlier in reversed(attempts[: attempt.number - 1]):
        was_chosen = following is attempt or following.resumed_step is not None
        if was_chosen and not following.takes_newest:
            break
        found.append(str(home / "attempts" / earlier.id / "checkpoints"))
        following = earlier
    return found


async def _locked(attempt_id: str, service: Service, session: SessionOf) -> tuple[Run, Attempt]:
    found = await repository.with_locked_run(session, attempt_id)
    if found is None:
        raise NotFound("attempt", attempt_id)
    return found


LockedAttempt = Annotated[tuple[Run, Attempt], Depends(_locked)]
"""The attempt in the path with its run, locked, for the workers."""


@router.post("/internal/attempts/{attempt_id}/token")
async def mint_driver_token(
    found: LockedAttempt, context: ContextOf, session: SessionOf
) -> DriverToken:
    """A credential for the attempt's driver; the one before is worth nothing from now on.

    Refused once a driver of the attempt was heard: another one would number its batches anew, over
    those that are stored, and begin where the attempt began. If that driver is gone, the run goes
    on as another attempt.
    """
    run, attempt = found
    status = RunStatus(attempt.status)
    if status not in (RunStatus.STARTING, RunStatus.RUNNING):
        raise Problem(
            409,
            "run-not-active",
            f"Attempt {attempt.id} is {status}: it must not be submitted to Ray.",
            status_now=status.value,
        )
    if attempt.heartbeat_at is not None:
        raise Problem(
            409,
            "already-started",
            f"A driver of attempt {attempt.id} was heard: the attempt is not started once more.",
        )
    await settle_beginning(session, run, attempt)
    token = mint("lga", attempt.id)
    attempt.token_hash = token.hash
    attempt.fencing_token += 1
    await leases.bind(session, attempt)
    await session.commit()
    return DriverToken(
        token=str(token),
        fencing_token=attempt.fencing_token,
        api_url=context.settings.api_url,
    )


@router.get("/internal/attempts")
async def list_attempts(
    service: Service, session: SessionOf, now: Now, active: bool = True
) -> Page[AttemptState]:
    """Attempts for the workers to look after: those that are not over, or not gone yet."""
    return Page(
        items=[
            AttemptState(
                id=attempt.id,
                run_id=run.id,
                number=attempt.number,
                status=RunStatus(attempt.status),
                submission_id=attempt.submission_id,
                measure=due_measure(run, attempt, now),
                boot_id=attempt.heartbeat_boot_id,
            )
            for run, attempt in await repository.with_runs(session, active=active)
        ]
    )


@router.post("/internal/attempts/{attempt_id}/submitted", status_code=204)
async def mark_submitted(
    body: Submitted, found: LockedAttempt, session: SessionOf, now: Now
) -> None:
    """The attempt has become a Ray job. Saying so twice, or too late, changes nothing."""
    run, attempt = found
    if attempt.submitted_at is None and not RunStatus(attempt.status).is_terminal:
        attempt.submitted_at = now
        attempt.submission_id = body.submission_id
        record(session, run, attempt.number, "submitted", "Submitted to Ray.", now)
    await session.commit()


@router.post("/internal/attempts/{attempt_id}/submit-failed", status_code=204)
async def mark_submit_failed(
    body: SubmitFailed, found: LockedAttempt, session: SessionOf, now: Now
) -> None:
    """The attempt could not become a Ray job: its run has failed."""
    run, attempt = found
    attempt.ray_status, attempt.ray_seen_at = "missing", now
    if not RunStatus(attempt.status).is_terminal:
        run.traceback = excerpt(body.traceback) if body.traceback else None
        reason = first_line(body.reason) or "It could not be submitted to Ray."
        move(session, run, attempt, RunStatus.FAILED, reason, now, by="workers")
    await session.commit()


@router.post("/internal/observations", status_code=204)
async def take_observation(
    body: Observation, service: Service, context: ContextOf, session: SessionOf, now: Now
) -> None:
    """What the workers saw of Ray."""
    await take(session, body, now, context.listening_since)
    await session.commit()
