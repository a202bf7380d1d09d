"""What both loops share: their surroundings, supervision, evaluation, checkpoints and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from lagoon.config import RunConfig
from lagoon.prompts import task_index
from lagoon.stalls import Activity
from workers.checkpoints import Checkpoints, NotSaved, SaveParts
from workers.generators import Generators
from workers.loops.state import LoopState
from workers.reporting import Reporter
from workers.rollout import EpisodeRequest
from workers.steering import Controls

Outcome = Literal["finished", "stopped"]
T = TypeVar("T")
FAILURE_SAVE_SECONDS = 60.0
"""How long a run that has failed may take to save what it can."""
logger = logging.getLogger(__name__)


class Alarm:
    """A failure that is seen from outside the loop, and raised in it.

    There it ends the run like any other, and what was learned is saved.
    """

    def __init__(self) -> None:
        self._sounded = asyncio.Event()
        self.cause: Exception | None = None
        """What it was sounded with first."""

    def sound(self, error: Exception) -> None:
        """Have ``error`` raised; one that comes later is not the cause."""
        self.cause = self.cause or error
        self._sounded.set()

    async def watch(self) -> None:
        """Raise what the alarm is sounded with; the loops supervise it."""
        await self._sounded.wait()
        assert self.cause is not None  # it was sounded
        raise self.cause


@dataclass(slots=True)
class Progress:
    """How far the run is, for whoever asks from outside the loop."""

    version: int = 0
    """Policy version: optimizer steps, or ES updates, done."""
    reported: int = 0
    """The newest version whose step was reported: nobody is told of one that no chart has."""
    evaluated: int = -1
    """The newest version whose evaluation has begun."""
    heldout_success: float | None = None
    """What that evaluation found; None while it is not over."""
    trajectories: int = 0
    """Finished since the driver started."""
    activity: Activity = "starting"
    """What the loop is at, or waits for: set by the loops where they wait."""
    alarm: Alarm = field(default_factory=Alarm)
    """Sounded by whoever sees from outside that the run cannot go on."""

    ask_tools: Callable[[], Awaitable[bool]] | None = None
    """Whether all episodes in flight wait for a tool; asked when nothing comes forward."""

    def begin(self, state: LoopState, heldout_success: float | None) -> None:
        """Start from a checkpoint's state, whose policy had that success."""
        self.version = self.reported = state.version
        self.evaluated = state.evaluated
        self.heldout_success = heldout_success

    def note_trajectory(self) -> None:
        """One more trajectory is finished."""
        self.trajectories += 1


@dataclass(frozen=True, slots=True)
class LoopContext:
    """Everything a loop is handed. It reaches for nothing else."""

    config: RunConfig
    """As the attempt began with it; what may change meanwhile is read from ``controls``."""
    controls: Controls
    generators: Generators
    reporter: Reporter
    progress: Progress
    stop: asyncio.Event
    """Set when the run should end early."""
    clock: Callable[[], float]
    """Unix seconds, for events."""
    stopwatch: Callable[[], float]
    """Monotonic seconds, for durations; they stand still during a pause."""
    num_train_tasks: int | None
    heldout: Sequence[int]
    """Indices of the held-out tasks that every evaluation plays."""
    checkpoints: Checkpoints
    begins: LoopState
    """Where the run was when this attempt began; all zeros for the first."""

    def training_request(self, position: int, member: str, temperature: float) -> EpisodeRequest:
        """An episode of the task at ``position`` of the run's training order."""
        index = task_index(self.config.seed, position, self.num_train_tasks)
        return EpisodeRequest.of_training(position, member, index, temperature)

    def is_evaluated(self, version: int) -> bool:
        """True for the versions that the run evaluates while it goes on."""
        return version % self.config.evaluation.every_steps == 0

    def started(self, seconds_before: float) -> float:
        """The stopwatch's reading from which the training time counts that starts now, with those
        ``seconds_before`` of earlier attempts."""
        return self.stopwatch() - seconds_before

    def trained_seconds(self, started: float | None, seconds_before: float) -> float:
        """Training time so far; ``started`` is None while only earlier attempts have trained."""
        return seconds_before if started is None else self.stopwatch() - started

    def out_of_time(self, started: float) -> bool:
        """True when the wall-clock budget, counted from ``started``, is spent."""
        limit = self.config.budget.max_seconds
        return limit is not None and self.stopwatch() - started >= limit

    async def evaluate(self, *, beside: bool = False) -> float | None:
        """Play the fixed held-out tasks greedily on all generators and report success, once for
        each version; ``beside`` whatever else the loop is at. Returns the success.

        A stop request ends the evaluation: nothing is reported then.
        """
        version, before = self.progress.version, self.progress.evaluated
        if before >= version or self.stop.is_set():
            return None
        self.progress.evaluated, self.progress.heldout_success = version, None
        if not beside:
            self.progress.activity = "evaluating"
        started = self.stopwatch()
        requests = [
            EpisodeRequest(f"heldout/{version}/{index}", f"heldout/{index}", "heldout", index, 0.0)
            for index in self.heldout
        ]
        played = None
        try:
            played = await unless_stopped(self.stop, self.generators.spread(requests))
        finally:
            if played is None:  # stopped, or the run has failed: it is left to who goes on
                self.progress.evaluated = before
        if played is None:
            return None
        success = sum(t.success for t in played) / len(played)
        self.progress.heldout_success = success
        self.reporter.evaluation(version, played, self.stopwatch() - started)
        return success

    async def evaluate_at_start(self) -> None:
        """Evaluate the policy that the attempt begins with, where that is due and was not done."""
        if self.progress.version == 0 or self.is_evaluated(self.progress.version):
            await self.evaluate()

    async def after_update(self, state: Callable[[], LoopState], save: SaveParts) -> None:
        """Evaluate the new version and save a checkpoint of it, each where it is due."""
        version = self.progress.version
        if self.is_evaluated(version):
            await self.evaluate()
        if self.is_checkpointed(version):
            self.progress.activity = "saving"
            await self._save_on_the_way(state(), save)

    async def _save_on_the_way(self, state: LoopState, save: SaveParts) -> None:
        saving = self.checkpoints.save(state, save, self._success(), is_final=False)
        await self.saved_if_possible(state.version, saving)

    async def saved_if_possible(self, step: int, saving: Awaitable[T]) -> T | None:
        """The result of saving, or of a part of it, on the way. What cannot be written costs no
        training: that is said on the run's page, and the next one is tried when it is due."""
        was_behind = self.checkpoints.is_behind
        try:
            result = await saving
        except NotSaved as error:
            words = f"{error} The run goes on, and tries again at its next checkpoint."
            self.reporter.status("running", words)
            return None
        if was_behind and not self.checkpoints.is_behind:
            words = f"The weights of step {step} were saved: checkpoints work again."
            self.reporter.status("running", words)
        return result

    async def conclude(self, state: Callable[[], LoopState], save: SaveParts) -> Outcome:
        """Evaluate and keep the last weights."""
        stopped = self.stop.is_set()
        self.reporter.status("stopping" if stopped else "running", "Saving the weights.")
        await self.evaluate()
        self.progress.activity = "saving"
        await self.checkpoints.save(state(), save, self._success(), is_final=True)
        return "stopped" if stopped else "finished"

    async def save_after_failure(self, state: Callable[[], LoopState], save: SaveParts) -> None:
        """Save a checkpoint of a run that has failed, if that can still be done."""
        version = self.progress.version
        if version == self.begins.version or self.checkpoints.is_saved(version):
            return
        self.progress.activity = "saving"
        try:
            async with asyncio.timeout(FAILURE_SAVE_SECONDS):
                await self.checkpoints.save(state(), save, self._success(), is_final=False)
        except Exception as error:  # the failure that came before is the one to be told
            logger.warning("the weights of step %d could not be saved: %s", version, error)

    def _success(self) -> float | None:
        """Held-out success of exactly the present version, if it is known."""
        progress = self.progress
        return progress.heldout_success if progress.evaluated == progress.version else None

    async def wake(self, changed: asyncio.Event) -> None:
        """Wake the loop that waits for ``changed`` by changes of settings, and by a stop."""
        self.controls.connect(changed.set)
        await self.stop.wait()
        changed.set()

    def is_checkpointed(self, version: int) -> bool:
        """True for the versions that a checkpoint is saved of while the run goes on."""
        every = self.config.checkpoint.every_steps
        return self.is_evaluated(version) if every is None else version % every == 0


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of ``work``, or None when a stop is asked for before it is done."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        stopping.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def supervised(
    main: Coroutine[Any, Any, T], background: Sequence[Coroutine[Any, Any, None]]
) -> T:
    """Run ``main`` to its end while ``background`` goes on beside it.

    The first failure of any of them ends all of them and is raised as it was.
    """
    main_task = asyncio.ensure_future(main)
    tasks = [main_task, *(asyncio.ensure_future(coroutine) for coroutine in background)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks[1:]:
            if task.done():
                task.result()
        return await _first_of(main_task, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_of(main_task: asyncio.Future[T], tasks: Sequence[asyncio.Future[Any]]) -> T:
    """The result of ``main_task``, unless another task fails first."""
    pending = set(tasks)
    while not main_task.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return main_task.result()
