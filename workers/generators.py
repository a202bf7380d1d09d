"""The driver's side of the generators: who plays which episode, and what comes back.

One pump per generator collects finished episodes in batches and wakes whoever waits for them, so
that several thousand short episodes cost a few hundred messages.

::

    started ─▶ untrusted ─▶ proven: episodes go to it
                   ▲            │ publish, update
                   └────────────┘

Only a generator that has proved the weights it holds is given episodes. What proves them is the
business of ``workers.loops.proving``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from traceback import format_exception
from typing import Any, Protocol, TypeVar

from lagoon.trajectory import Trajectory
from workers.rollout import EpisodeFailure, EpisodeRequest, Sampled

T = TypeVar("T")


class RunFailed(Exception):
    """The run cannot go on. The message is one sentence for its page."""

    def __init__(self, reason: str, details: str = "", *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.details = details
        """A traceback from another process, for the log."""
        self.is_transient = is_transient
        """It need not happen again: a process was killed, or its machine is gone."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What a generator's weights became after an ES update."""

    checksum: str
    update_norm: float
    drift_norm: float
    num_parameters: int


class GeneratorHandle(Protocol):
    """A generator, wherever it runs."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        """Start episodes."""
        ...

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        """Wait for at least one finished episode and return all finished ones."""
        ...

    async def openings(
        self, requests: Sequence[EpisodeRequest]
    ) -> list[list[int]] | EpisodeFailure:
        """The prompts that episodes begin with. Nothing is sampled."""
        ...

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        """The greedy continuations of prompts, ``num_tokens`` each."""
        ...

    async def tools_waited_for(self) -> tuple[int, int]:
        """Episodes that wait for a tool at this moment, and all in flight."""
        ...

    async def publish(self, version: int, weights: Any) -> str:
        """Load published weights; returns the checksum of what arrived."""
        ...

    async def perturb(self, seed: int, sigma: float, noise: str) -> None:
        """Load the master weights plus noise."""
        ...

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> UpdateReport:
        """Add a weighted sum of noise to the master weights and load them."""
        ...

    async def save(self, folder: str) -> None:
        """Write the master weights as a model folder."""
        ...


class Generators:
    """A run's generators as one: balanced submission, awaited results, publication to all."""

    def __init__(
        self,
        handles: Sequence[GeneratorHandle],
        trainer_version: Callable[[], int],
        on_finished: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_finished`` is called for every trajectory that comes back."""
        self.handles = list(handles)
        self._trainer_version, self._on_finished = trainer_version, on_finished
        self._waiting: dict[str, asyncio.Future[Trajectory]] = {}
        self._in_flight = [0] * len(self.handles)
        self._owner: dict[str, int] = {}
        self._proven: set[int] = set()
        self._newly_proven = asyncio.Event()

    async def play(
        self, requests: Sequence[EpisodeRequest], generator: int | None = None
    ) -> list[Trajectory]:
        """Play episodes and return their trajectories, in the order of the requests.

        Runs on the least busy generator unless one is named; split a large set with ``spread``.
        Waits for a generator that has proved its weights.
        """
        generator = await self._proven_one(generator)
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        for request, future in zip(requests, futures, strict=True):
            self._waiting[request.trajectory_id] = future
            self._owner[request.trajectory_id] = generator
        self._in_flight[generator] += len(requests)
        await self._asked(generator, self.handles[generator].submit(requests))
        return list(await asyncio.gather(*futures))

    async def _proven_one(self, wanted: int | None) -> int:
        """The wanted generator, or the least busy one, once it has proved its weights."""
        while not (ready := self._proven if wanted is None else self._proven & {wanted}):
            self._newly_proven.clear()
            await self._newly_proven.wait()
        return min(sorted(ready), key=self._in_flight.__getitem__)

    def trust(self, generators: Iterable[int]) -> None:
        """Give episodes to generators, which have proved their weights, until these change."""
        self._proven.update(generators)
        self._newly_proven.set()

    async def spread(self, requests: Sequence[EpisodeRequest]) -> list[Trajectory]:
        """Play episodes on all generators at once; the order of the requests is kept."""
        count = len(self.handles)
        shares = [list(requests[start::count]) for start in range(count)]
        played = await asyncio.gather(
            *(self.play(share, index) for index, share in enumerate(shares) if share)
        )
        by_id = {trajectory.trajectory_id: trajectory for share in played for trajectory in share}
        return [by_id[request.trajectory_id] for request in requests]

    async def pump(self, generator: int) -> None:
        """Deliver a generator's finished episodes for ever.

        Consumes: what ``collect`` returns. Produces: resolved ``play`` calls, stamped with the
        trainer's version at this moment. Raises ``RunFailed`` when the generator died or an
        environment raised.
        """
        handle = self.handles[generator]
        while True:
            for item in await self._asked(generator, handle.collect()):
                self._deliver(item)

    def _deliver(self, item: Trajectory | EpisodeFailure) -> None:
        future = self._waiting.pop(item.trajectory_id)
        self._in_flight[self._owner.pop(item.trajectory_id)] -= 1
        if isinstance(item, EpisodeFailure):
            raise environment_failed(item)
        self._on_finished()
        if not future.done():
            future.set_result(replace(item, completed_version=self._trainer_version()))

    async def all_wait_for_tools(self) -> bool:
        """True when there are episodes in flight, and each of them waits for a tool to answer."""
        counts = await self.each(lambda handle: handle.tools_waited_for())
        playing = sum(count for _, count in counts)
        return 0 < playing <= sum(count for count, _ in counts)

    async def publish(
        self, version: int, weights: Any, generators: Iterable[int] | None = None
    ) -> list[str]:
        """Publish to generators, all unless some are named; returns checksums of what arrived.

        They get no more episodes until they are trusted again.
        """
        to = list(range(len(self.handles)) if generators is None else generators)
        self._proven.difference_update(to)
        return await self.each(lambda handle: handle.publish(version, weights), to)

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> list[UpdateReport]:
        """Apply an ES update on every generator; no episodes until they are trusted again."""
        self._proven.clear()
        return await self.each(lambda handle: handle.update(version, seeds, coefficients, noise))

    async def each(
        self,
        call: Callable[[GeneratorHandle], Awaitable[T]],
        generators: Iterable[int] | None = None,
    ) -> list[T]:
        """The results of one call on generators, all unless some are named, run at once."""
        asked = range(len(self.handles)) if generators is None else generators
        return list(await asyncio.gather(*(self.ask(index, call) for index in asked)))

    async def ask(self, generator: int, call: Callable[[GeneratorHandle], Awaitable[T]]) -> T:
        """The result of one call on one generator; ``RunFailed`` names it when it fails."""
        return await self._asked(generator, call(self.handles[generator]))

    async def _asked(self, generator: int, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Exception as error:
            raise failure(f"Generator {generator} failed", error) from error


def refuse_disagreement(checksums: Sequence[str], version: int) -> None:
    """Raise ``RunFailed`` when the generators hold different weights after the same update."""
    others = [index for index, checksum in enumerate(checksums) if checksum != checksums[0]]
    if others:
        *first, last = map(str, (0, *others))
        raise RunFailed(
            f"Generators {', '.join(first)} and {last} hold different weights after update "
            f"{version}: their members would not belong to one population."
        )


def refuse_other_weights(reports: Sequence[UpdateReport], logged: str, version: int) -> None:
    """Raise ``RunFailed`` when an update that was made again did not give the same weights."""
    if any(report.checksum != logged for report in reports):
        raise RunFailed(
            f"Update {version}, made again from its log, gives other weights than it gave before: "
            "was the log changed, or another version of torch installed? The checkpoint before it "
            "is as it was; resume from that one to evaluate the generations after it anew."
        )


def environment_failed(item: EpisodeFailure) -> RunFailed:
    """An environment's error as the end of the run."""
    return RunFailed(f"The environment raised an error: {item.message}", item.traceback)


def failure(what: str, error: BaseException) -> RunFailed:
    """``what`` and the cause in one sentence, with the traceback as details.

    An error from another process wraps its cause: the cause is what a person should read. An error
    of a kind that need not happen again says so by ``is_transient``.
    """
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    details = str(error) if cause is not error else "".join(format_exception(error))
    is_transient = bool(getattr(cause, "is_transient", False))
    return RunFailed(f"{what}: {text.splitlines()[0][:300]}", details, is_transient=is_transient)
