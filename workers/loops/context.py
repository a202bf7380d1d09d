"""What both loops share: their surroundings, supervision, evaluation, checkpoints and end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from lagoon.config import RunConfig
from lagoon.events import CheckpointLogged
from lagoon.prompts import task_index
from lagoon.stalls import Activity
from workers.generators import Generators
from workers.reporting import Reporter
from workers.rollout import EpisodeRequest
from workers.sink import Sink

Outcome = Literal["finished", "stopped"]
T = TypeVar("T")


@dataclass(slots=True)
class Progress:
    """How far the run is, for whoever asks from outside the loop."""

    version: int = 0
    """Policy version: optimizer steps, or ES updates, done."""
    evaluated: int = -1
    """The newest version whose evaluation has begun."""
    trajectories: int = 0
    """Finished since the driver started."""
    activity: Activity = "starting"
    """What the loop is at, or waits for: set by the loops where they wait."""

    ask_tools: Callable[[], Awaitable[bool]] | None = None
    """Whether all episodes in flight wait for a tool; asked when nothing comes forward."""

    def note_trajectory(self) -> None:
        """One more trajectory is finished."""
        self.trajectories += 1


@dataclass(frozen=True, slots=True)
class LoopContext:
    """Everything a loop is handed. It reaches for nothing else."""

    config: RunConfig
    generators: Generators
    reporter: Reporter
    sink: Sink
    progress: Progress
    stop: asyncio.Event
    """Set when the run should end early."""
    clock: Callable[[], float]
    """Unix seconds, for events."""
    stopwatch: Callable[[], float]
    """Monotonic seconds, for durations."""
    num_train_tasks: int | None
    heldout: Sequence[int]
    """Indices of the held-out tasks that every evaluation plays."""
    checkpoints: Path
    """Folder that checkpoints are written to."""

    def training_request(self, position: int, member: str, temperature: float) -> EpisodeRequest:
        """An episode of the task at ``position`` of the run's training order."""
        index = task_index(self.config.seed, position, self.num_train_tasks)
        return EpisodeRequest(
            trajectory_id=f"train/{position}/{member}",
            prompt_id=f"train/{index}",
            split="train",
            index=index,
            temperature=temperature,
        )

    def is_evaluated(self, version: int) -> bool:
        """True for the versions that the run evaluates while it goes on."""
        return version % self.config.evaluation.every_steps == 0

    def out_of_time(self, started: float) -> bool:
        """True when the wall-clock budget, counted from ``started``, is spent."""
        limit = self.config.budget.max_seconds
        return limit is not None and self.stopwatch() - started >= limit

    async def evaluate(self) -> None:
        """Play the fixed held-out tasks greedily on all generators and report success, once for
        each version.

        A stop request ends the evaluation: nothing is reported then.
        """
        version = self.progress.version
        if self.progress.evaluated >= version or self.stop.is_set():
            return
        self.progress.evaluated = version
        self.progress.activity = "evaluating"
        started = self.stopwatch()
        requests = [
            EpisodeRequest(f"heldout/{version}/{index}", f"heldout/{index}", "heldout", index, 0.0)
            for index in self.heldout
        ]
        played = await unless_stopped(self.stop, self.generators.spread(requests))
        if played is not None:
            self.reporter.evaluation(version, played, self.stopwatch() - started)

    async def checkpoint(
        self, version: int, save: Callable[[Path], Awaitable[object]], *, is_final: bool
    ) -> None:
        """Save weights with ``save``, announce them, and drop what is past ``keep``."""
        name = "final" if is_final else f"step-{version:06d}"
        folder = self.checkpoints / name
        self.progress.activity = "saving"
        await save(folder)
        kept = self.config.checkpoint.keep
        older = [] if is_final else sorted(self.checkpoints.glob("step-*"))[:-kept]
        self.sink.log(
            CheckpointLogged(
                at=self.clock(),
                step=version,
                path=str(folder),
                is_final=is_final,
                dropped=tuple(map(str, older)),
            )
        )
        for outdated in older:
            shutil.rmtree(outdated)

    async def conclude(self, save: Callable[[Path], Awaitable[object]]) -> Outcome:
        """Evaluate and keep the last weights."""
        stopped = self.stop.is_set()
        self.reporter.status("stopping" if stopped else "running", "Saving the weights.")
        await self.evaluate()
        await self.checkpoint(self.progress.version, save, is_final=True)
        return "stopped" if stopped else "finished"

    async def wake_on_stop(self, changed: asyncio.Event) -> None:
        """Wake the loop that waits for ``changed`` when a stop is asked for."""
        await self.stop.wait()
        changed.set()

    def is_checkpointed(self, version: int) -> bool:
        """True for the versions whose weights are kept while the run goes on."""
        every = self.config.checkpoint.every_steps
        return every is not None and version % every == 0


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
