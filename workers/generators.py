"""The driver's side of the generators: who plays which episode, and what comes back.

One pump per generator collects finished episodes in batches and wakes whoever waits for them, so
that several thousand short episodes cost a few hundred messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lagoon.trajectory import Trajectory
from workers.rollout import EpisodeFailure, EpisodeRequest


class RunFailed(Exception):
    """The run cannot go on. The message is one sentence for its page."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details
        """A traceback from another process, for the log."""


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

    async def publish(self, version: int, weights: Any) -> str:
        """Load published weights; returns the checksum of what arrived."""
        ...

    async def perturb(self, seed: int, sigma: float, noise: str) -> None:
        """Load the master weights plus noise."""
        ...

    async def restore(self) -> None:
        """Load the master weights."""
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
        self, handles: Sequence[GeneratorHandle], trainer_version: Callable[[], int]
    ) -> None:
        self.handles = list(handles)
        self._trainer_version = trainer_version
        self._waiting: dict[str, asyncio.Future[Trajectory]] = {}
        self._in_flight = [0] * len(self.handles)
        self._owner: dict[str, int] = {}

    @property
    def num_in_flight(self) -> int:
        """Episodes submitted and not yet finished."""
        return len(self._waiting)

    async def play(
        self, requests: Sequence[EpisodeRequest], generator: int | None = None
    ) -> list[Trajectory]:
        """Play episodes and return their trajectories, in the order of the requests.

        Runs on the least busy generator unless one is named; split a large set with ``spread``.
        """
        if generator is None:
            generator = self._in_flight.index(min(self._in_flight))
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in requests]
        for request, future in zip(requests, futures, strict=True):
            self._waiting[request.trajectory_id] = future
            self._owner[request.trajectory_id] = generator
        self._in_flight[generator] += len(requests)
        await self.handles[generator].submit(requests)
        return list(await asyncio.gather(*futures))

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
            try:
                finished = await handle.collect()
            except Exception as error:
                raise RunFailed(
                    f"Generator {generator} died: {_first_line(error)}", repr(error)
                ) from error
            for item in finished:
                self._deliver(item)

    def _deliver(self, item: Trajectory | EpisodeFailure) -> None:
        future = self._waiting.pop(item.trajectory_id)
        self._in_flight[self._owner.pop(item.trajectory_id)] -= 1
        if isinstance(item, EpisodeFailure):
            raise RunFailed(f"The environment raised an error: {item.message}", item.traceback)
        if not future.done():
            future.set_result(replace(item, completed_version=self._trainer_version()))

    async def publish(self, version: int, weights: Any) -> list[str]:
        """Publish to every generator; returns the checksums of what arrived."""
        return list(await self.each(lambda handle: handle.publish(version, weights)))

    async def each(self, call: Callable[[GeneratorHandle], Any]) -> list[Any]:
        """The results of one call on every generator, run at once."""
        return list(await asyncio.gather(*(call(handle) for handle in self.handles)))


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
