"""A stop in each phase of a run: how long its processes stay after the request.

A process that is held in the middle of its work (SIGSTOP) stands for a disk, or a computation, that
does not come back: there the platform's escalation alone can end the run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fault_cases import Case, Found
from benchmarks.fault_stage import GONE_SECONDS, Run, Stage, config
from benchmarks.fault_targets import of_attempt
from cli.processes import wait_until
from lagoon.status import RunStatus

WAIT_SECONDS = 180.0
WATCH_SECONDS = 0.002
SETTLE_SECONDS = 0.3
NUM_TRIES = 20
PARTIAL = ".partial"
"""In the names of what is being written (``workers/models/writing.py``)."""
LOADING = "Starting generators and trainer"
TRAINER = "ray::TrainerActor"
Reach = Callable[[Stage, str, random.Random], object]
"""Brings a run to a phase; falsy when it did not get there."""


def _stop(phase: str, reach: Reach, **sections: Any) -> Case:
    def played(stage: Stage, order: random.Random) -> Found:
        given = config(order.randrange(1000), **{"budget": {"max_steps": 500}, **sections})
        run_id = stage.start(f"stop: {phase}", given)
        reached = reach(stage, run_id, order)
        before = stage.read(run_id)
        began = time.monotonic()
        stage.patiently("POST", f"/runs/{run_id}/stop")
        mark = f"{run_id}-a1"
        is_gone = wait_until(lambda: not of_attempt(mark), 2 * GONE_SECONDS, poll_seconds=0.1)
        seconds = time.monotonic() - began
        ended = stage.ended(run_id)
        found = Found(f"{before['status']}, then {ended['status']}: {ended['reason']}")
        found.expect(reached, f"it was not {phase}, but {before['status']}: {before['reason']}")
        found.expect_soon(seconds if is_gone else None, "its processes were there", GONE_SECONDS)
        found.expect(ended["status"] == RunStatus.STOPPED, f"it is {ended['status']}")
        found.wrong += stage.faults(ended, given["method"]["num_prompts"])
        return found

    return Case(f"stop: {phase}", played)


def _behind_another(case: Case) -> Case:
    """The case, with a run before its own that takes all of the machine."""

    def played(stage: Stage, order: random.Random) -> Found:
        first = stage.start("takes the machine", config(0, budget={"max_steps": 500}))
        stage.until(first, lambda run: run["status"] != RunStatus.QUEUED)
        found = case.play(stage, order)
        stage.patiently("POST", f"/runs/{first}/stop")
        found.wrong += stage.faults(stage.ended(first))
        return found

    return Case(case.name, played)


def _queued(stage: Stage, run_id: str, order: random.Random) -> bool:
    time.sleep(order.uniform(1.0, 3.0))
    return bool(stage.read(run_id)["status"] == RunStatus.QUEUED)


def _starting(stage: Stage, run_id: str, order: random.Random) -> object:
    return _until(stage, run_id, lambda run: bool(of_attempt(f"{run_id}-a1")))


def _loading(stage: Stage, run_id: str, order: random.Random) -> object:
    reached = _until(stage, run_id, lambda _: any(LOADING in words for words in stage.said(run_id)))
    time.sleep(order.uniform(0.0, 4.0))
    return reached is not None and stage.read(run_id)["status"] == RunStatus.STARTING


def _at(*activities: str) -> Reach:
    """The loop was last heard to be at one of these, and had trained before."""

    def reach(stage: Stage, run_id: str, order: random.Random) -> object:
        return _until(stage, run_id, lambda run: run["step"] > 0 and _activity(run) in activities)

    return reach


def _updating_held(stage: Stage, run_id: str, order: random.Random) -> object:
    if _until(stage, run_id, lambda run: run["step"] > 0) is None:
        return None
    os.kill(_trainer(run_id), signal.SIGSTOP)
    return _until(stage, run_id, lambda run: _activity(run) in ("training", "updating"))


def _saving(stage: Stage, run_id: str, order: random.Random) -> bool:
    """The moment at which a checkpoint is half written."""
    folder = _checkpoints(stage, run_id)
    return wait_until(lambda: _is_half_written(folder), WAIT_SECONDS, poll_seconds=WATCH_SECONDS)


def _saving_held(stage: Stage, run_id: str, order: random.Random) -> object:
    if _until(stage, run_id, lambda run: run["step"] > 0) is None:
        return None
    trainer = _trainer(run_id)
    for _ in range(NUM_TRIES):  # it may be through before it is held
        if not _saving(stage, run_id, order):
            return None
        os.kill(trainer, signal.SIGSTOP)
        time.sleep(SETTLE_SECONDS)
        if _is_half_written(_checkpoints(stage, run_id)):
            return _until(stage, run_id, lambda run: _activity(run) == "saving")
        os.kill(trainer, signal.SIGCONT)
    return None


def _checkpoints(stage: Stage, run_id: str) -> Path:
    return stage.home.root / "attempts" / f"{run_id}-a1" / "checkpoints"


def _is_half_written(folder: Path) -> bool:
    return folder.exists() and any(PARTIAL in path.name for path in folder.iterdir())


def _trainer(run_id: str) -> int:
    """The trainer's process. Raises ``StopIteration`` when there is none."""
    return next(pid for pid, name in of_attempt(f"{run_id}-a1").items() if TRAINER in name)


def _activity(run: Run) -> str:
    return str(run["attempts"][-1]["activity"])


def _until(stage: Stage, run_id: str, holds: Callable[[Run], bool]) -> float | None:
    return stage.until(run_id, holds, WAIT_SECONDS)


LARGE_UPDATES = {"num_prompts": 64, "group_size": 8}
STOPS = (
    _stop("checkpointing", _saving, checkpoint={"every_steps": 1}),
    _stop("checkpointing, its trainer held", _saving_held, checkpoint={"every_steps": 1}),
    _behind_another(_stop("queued", _queued)),
    _stop("starting", _starting),
    _stop("loading its model", _loading),
    _stop("generating", _at("starved"), environment={"mean_wait_seconds": 3, "wait_sigma": 0}),
    _stop("updating", _at("training"), method=LARGE_UPDATES),
    _stop("updating, its trainer held", _updating_held),
)
