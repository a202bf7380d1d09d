"""A run that goes on with another attempt: by itself after a failure, or because somebody asks.

::

    starting, running ──(what may pass has failed)──▶ queued, waits ──▶ attempt n+1
    stopped, failed ──(somebody resumes it)─────────▶ queued ─────────▶ attempt n+1

The next attempt is told the run's checkpoints, newest first, and goes on from the first that is
whole. Without one it begins anew. The credential of the attempt before is worth nothing from then
on, so that two drivers never speak for one run. Which checkpoints those are is settled with its
first credential: until then what the driver before it left in its spool may arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Invalid, Problem
from backend.models import Attempt, Checkpoint, Run
from backend.runs import repository
from backend.runs.creation import new_attempt
from backend.runs.transitions import end_attempt, move
from lagoon.checkpoints import DamagedCheckpoint, verified
from lagoon.config import RunConfig
from lagoon.problems import FieldProblem
from lagoon.recovery import next_attempt
from lagoon.status import TERMINAL, RunStatus


async def fail(
    session: AsyncSession,
    run: Run,
    attempt: Attempt,
    reason: str,
    now: datetime,
    *,
    is_transient: bool,
    by: str,
) -> None:
    """End an attempt that failed, and with it the run, unless that starts again by itself."""
    attempts = await repository.attempts(session, run.id)
    max_restarts = RunConfig.stored(run.config).budget.max_restarts
    restart = next_attempt(
        is_transient=is_transient,
        desired=run.desired,
        num_restarts=_restarts_in_a_row(attempts),
        max_restarts=max_restarts,
    )
    if restart is None:
        gave_up = is_transient and attempt.is_restart
        words = f" It had started again {max_restarts} times." if gave_up else ""
        move(session, run, attempt, RunStatus.FAILED, f"{reason}{words}", now, by=by)
        return
    end_attempt(attempt, RunStatus.FAILED, reason, now)
    run.not_before = now + timedelta(seconds=restart.delay_seconds)
    count = f"restart {restart.number} of {max_restarts}"
    words = f"Starts again in {restart.delay_seconds:g} s ({count}): {reason}"
    await _go_on(session, run, attempt, words, now, by=by, is_restart=True)


async def resume(
    session: AsyncSession, run: Run, checkpoint_id: int | None, by: str, now: datetime
) -> None:
    """Have a run that stopped or failed go on, from a checkpoint or from the newest.

    Raises a problem, with everything as it was, for a run that is not over, or has finished, and
    for a checkpoint that is not the run's or not whole.
    """
    status = RunStatus(run.status)
    if not status.is_resumable:
        raise Problem(409, "run-not-resumable", _WHY_NOT[status])
    attempt = await repository.newest_attempt(session, run.id)
    chosen = None
    if checkpoint_id is not None:
        chosen = await usable_checkpoint(session, run, checkpoint_id)
    run.desired = "run"
    run.stop_requested_at = run.stop_requested_by = None
    run.not_before = run.ended_at = None
    words = f"Resumed by {by}" + (f" from step {chosen.step}." if chosen else ".")
    await _go_on(session, run, attempt, words, now, by=by, only=chosen)


async def usable_checkpoint(session: AsyncSession, run: Run, checkpoint_id: int) -> Checkpoint:
    """The run's checkpoint of that id, after a look at its files where they are on this machine.

    Raises a problem that names the newest one that is whole, if there is one.
    """
    known = (await repository.checkpoints(session, run.id))[::-1]
    chosen = next((each for each in known if each.id == checkpoint_id), None)
    if chosen is None:
        detail = f"Run {run.id} has no checkpoint {checkpoint_id}. Nothing was changed."
        raise Problem(404, "not-found", detail)
    damage = await _damage(run, chosen)
    if damage is None:
        return chosen
    whole = [each for each in known if each is not chosen and await _damage(run, each) is None]
    instead = (
        f"The checkpoint of step {whole[0].step} (number {whole[0].id}) is whole."
        if whole
        else "No other checkpoint of the run is whole."
    )
    raise Problem(
        409,
        "checkpoint-damaged",
        f"The checkpoint of step {chosen.step} cannot be used: {damage}. Nothing was changed. "
        f"{instead}",
        usable_checkpoint_id=whole[0].id if whole else None,
    )


def refuse_misfit(run: Run, checkpoint: Checkpoint, config: RunConfig) -> None:
    """Raise a problem, naming the field, when a fork's configuration cannot begin with it."""
    wanted = {
        "method.name": (getattr(config.method, "name"), run.method),  # noqa: B009  each has one
        "model.path": (config.model.path, run.model),
    }
    errors = [
        FieldProblem((field,), f"the checkpoint is of {found!r}; it cannot go on as {asked!r}")
        for field, (asked, found) in wanted.items()
        if asked != found
    ]
    if config.budget.max_steps <= checkpoint.step:
        words = f"the checkpoint is of step {checkpoint.step}, so there would be nothing to do"
        errors.append(FieldProblem(("budget.max_steps",), words))
    if errors:
        raise Invalid(errors, "invalid-config")


async def refuse_while_awaited(session: AsyncSession, run_ids: Sequence[str]) -> None:
    """Raise a 409 problem when a fork of one of the runs begins with its parent's weights, not with
    links to them (``storage.beginnings``), and has yet to save weights of its own."""
    paths = set(
        await session.scalars(select(Checkpoint.path).where(Checkpoint.run_id.in_(run_ids)))
    )
    has_own = select(Checkpoint.id).where(Checkpoint.run_id == Attempt.run_id).exists()
    statement = select(Attempt.candidates).where(
        Attempt.status.not_in(TERMINAL),
        Attempt.owns_candidates.is_(False),
        Attempt.run_id.not_in(run_ids),
        ~has_own,
    )
    if any(paths.intersection(candidates) for candidates in await session.scalars(statement)):
        raise Problem(
            409,
            "fork-waits",
            "A fork needs a checkpoint of it, and has not saved one of its own yet. Nothing was "
            "deleted; stop the fork, or try again when it has.",
        )


async def _damage(run: Run, checkpoint: Checkpoint) -> str | None:
    """Why a checkpoint cannot be used; None also where its folder is not on this machine: then the
    driver looks."""
    folder = Path(checkpoint.path)
    if not folder.parent.is_dir():
        return None
    try:
        await asyncio.to_thread(verified, folder, method=run.method, model=run.model)
    except DamagedCheckpoint as error:
        return str(error)
    return None


async def _go_on(
    session: AsyncSession,
    run: Run,
    attempt: Attempt,
    reason: str,
    now: datetime,
    *,
    by: str,
    is_restart: bool = False,
    only: Checkpoint | None = None,
) -> None:
    """Queue the run with an attempt of its own after ``attempt``, which has ended."""
    attempt.token_hash = None
    following = new_attempt(run.id, attempt.number + 1, now, is_restart=is_restart)
    if only is not None:
        following.candidates, following.takes_newest = [only.path], False
    else:
        await _begin_with_newest(session, run, following)
    session.add(following)
    run.traceback = None
    move(session, run, following, RunStatus.QUEUED, reason, now, by=by)
    await session.flush()


async def settle_beginning(session: AsyncSession, run: Run, attempt: Attempt) -> None:
    """Settle what an attempt may go on from, as its first credential is minted.

    A driver before it may have left announcements of checkpoints that have arrived since it was
    planned; what arrives later is nobody's to go on from (``events/leftovers.py``). Nothing changes
    where somebody chose the checkpoint.
    """
    is_chosen = not attempt.takes_newest and not attempt.is_restart
    if attempt.number > 1 and attempt.fencing_token == 0 and not is_chosen:
        await _begin_with_newest(session, run, attempt)


async def _begin_with_newest(session: AsyncSession, run: Run, following: Attempt) -> None:
    """Have an attempt go on from the newest checkpoint that nothing has superseded.

    Where the one before it had not come to go on from what it was told, or is a fork's without any
    checkpoint of its own, it is told the same.
    """
    attempts = (await repository.attempts(session, run.id))[: following.number - 1]
    before = attempts[-1]
    known = await repository.checkpoints(session, run.id)
    found = [each.path for each in reversed(known) if not is_superseded(each, attempts)]
    has_begun = before.resumed_step is not None or not before.candidates
    was_settled = before.fencing_token > 0 or not before.takes_newest
    if (has_begun or not was_settled) and (found or before.owns_candidates):
        following.candidates, following.owns_candidates = found, True
        following.takes_newest = True
        return
    following.candidates = before.candidates
    following.owns_candidates = before.owns_candidates
    following.takes_newest = before.takes_newest


def is_superseded(checkpoint: Checkpoint, attempts: Sequence[Attempt]) -> bool:
    """Whether a later attempt went on from before the checkpoint, with other updates."""
    return any(
        attempt.number > checkpoint.attempt
        and attempt.resumed_step is not None
        and attempt.resumed_step < checkpoint.step
        for attempt in attempts
    )


def _restarts_in_a_row(attempts: Sequence[Attempt]) -> int:
    """Restarts that did not get further than any attempt before them, since the last that did."""
    count = 0
    for number in range(len(attempts) - 1, 0, -1):
        attempt, before = attempts[number], attempts[:number]
        got_further = attempt.last_step > max(each.last_step for each in before)
        if not attempt.is_restart or got_further:
            break
        count += 1
    return count


_WHY_NOT = {
    RunStatus.FINISHED: "The run has finished: it reached the end of its budget. Fork it from a "
    "checkpoint, with a larger budget, to go on.",
    RunStatus.QUEUED: "The run is queued already.",
    RunStatus.STARTING: "The run is starting; there is nothing to resume.",
    RunStatus.RUNNING: "The run is running; there is nothing to resume.",
    RunStatus.STOPPING: "The run is still stopping. Resume it when it has stopped.",
}
