"""The driver's side of the generators: who plays which episode, and what comes back.

One pump per generator collects finished episodes in batches and wakes whoever waits for them, so
that several thousand short episodes cost a few hundred messages.

::

    started ─▶ untrusted ─▶ proven: episodes go to it, what it gives back is handed on
                ▲    ▲          │ publish, update
                │    └──────────┤
     replacement└───── died ◀───┘

Only a generator that has proved the weights it holds is given episodes. Episodes in flight during a
publish go on with the new weights; what is given back before these are proved is held until they
are, and lost when they are not at once. Lost episodes, those of a generator that died among them,
are played again by whoever asked for them. Episodes that nobody waits for, because they are lost or
whoever asked for them was cancelled, are given up: their generator is told to end them. What proves
weights is the business of ``workers.loops.proving``, which gives a replacement the present ones,
too.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from lagoon.trajectory import Trajectory
from workers.failures import GeneratorDied, RunFailed, environment_failed, failure
from workers.handles import GeneratorHandle, UpdateReport
from workers.rollout import EpisodeFailure, EpisodeRequest
from workers.seats import EpisodesLost, LossReason, Seat, again

T = TypeVar("T")
logger = logging.getLogger(__name__)


Replacement = Callable[[int], Awaitable[GeneratorHandle]]
"""Starts another generator in the place of the one of that number; raises ``RunFailed``."""


class Generators:
    """A run's generators as one: balanced submission, awaited results, publication to all."""

    def __init__(
        self,
        handles: Sequence[GeneratorHandle],
        trainer_version: Callable[[], int],
        on_finished: Callable[[], None] = lambda: None,
        replacement: Replacement | None = None,
    ) -> None:
        """``on_finished`` is called for every trajectory that comes back; ``replacement`` starts
        another generator in the place of one that died, where that is possible."""
        self._seats = [Seat(handle) for handle in handles]
        self._trainer_version, self._on_finished = trainer_version, on_finished
        self._replacement = replacement
        self._waiting: dict[str, asyncio.Future[Trajectory]] = {}
        self._opened, self._lives = asyncio.Event(), asyncio.Event()
        self._lives.set()
        self.may_replace = False
        """Whether a generator that dies is replaced. Until then, and where no replacement can be
        had, its death is the run's failure."""
        self.newcomers: set[int] = set()
        """Replacements that were not given the present weights yet."""
        self.unbriefed: set[int] = set()
        """Replacements that were not told yet at which pace to play."""
        self.arrived = asyncio.Event()
        """Set when there may be newcomers."""
        self.num_lost: Counter[str] = Counter()
        """Episodes that came to nothing, by reason."""
        self._telling: set[asyncio.Task[None]] = set()
        """Generators that are being told what nobody waits for."""

    @property
    def handles(self) -> list[GeneratorHandle]:
        """The generators."""
        return [seat.handle for seat in self._seats]

    @property
    def living(self) -> list[int]:
        """Those that have not died, or have been replaced."""
        return [index for index, seat in enumerate(self._seats) if not seat.is_gone]

    @property
    def given(self) -> list[int]:
        """Those that live and were given the present weights, or have them from the start."""
        return [index for index in self.living if index not in self.newcomers]

    # -- episodes --------------------------------------------------------------------------------

    async def play(
        self,
        requests: Sequence[EpisodeRequest],
        generator: int | None = None,
        on_each: Callable[[Trajectory | None], None] = lambda _: None,
    ) -> list[Trajectory]:
        """Play episodes and return their trajectories, in the order of the requests.

        Runs on the least busy generator unless one is named; split a large set with ``spread``.
        Waits for a generator that has proved its weights. ``on_each`` is called whenever one of
        the trajectories has come, and with None when one never will. Raises ``EpisodesLost`` when
        they are to be played again. When this is cancelled, what is in flight is given up.
        """
        generator = await self._open_one(generator)
        loop, seat = asyncio.get_running_loop(), self._seats[generator]
        futures: list[asyncio.Future[Trajectory]] = [loop.create_future() for _ in requests]
        ids = [request.trajectory_id for request in requests]
        for future in futures:
            future.add_done_callback(lambda done: on_each(_came(done)))
        self._waiting.update(zip(ids, futures, strict=True))
        seat.began(ids)
        try:
            with suppress(GeneratorDied):  # its episodes are lost, these too, which is raised below
                await self.ask(generator, lambda handle: handle.submit(requests))
            return list(await asyncio.gather(*futures))
        except asyncio.CancelledError:
            self._lose(ids, "given_up")
            self._give_up(generator, ids)
            raise

    async def _open_one(self, wanted: int | None) -> int:
        """The wanted generator, or the least busy one, once it is given episodes."""
        while not (ready := [i for i in self._opened_ones() if wanted in (None, i)]):
            self._opened.clear()
            await self._opened.wait()
        return min(ready, key=lambda index: len(self._seats[index].playing))

    def _opened_ones(self) -> list[int]:
        return [index for index, seat in enumerate(self._seats) if seat.is_open]

    async def spread(self, requests: Sequence[EpisodeRequest]) -> list[Trajectory]:
        """Play episodes on all generators at once; the order of the requests is kept.

        What is lost with a generator is played again on another.
        """
        await self._open_one(None)
        among = self._opened_ones()
        shares = [list(requests[start :: len(among)]) for start in range(len(among))]
        played = await asyncio.gather(
            *(self._play_through(share, at) for share, at in zip(shares, among, strict=True))
        )
        by_id = {trajectory.trajectory_id: trajectory for share in played for trajectory in share}
        return [by_id[request.trajectory_id] for request in requests]

    async def _play_through(
        self, requests: Sequence[EpisodeRequest], generator: int
    ) -> list[Trajectory]:
        if not requests:
            return []
        wanted: int | None = generator
        for attempt in itertools.count():
            named = [again(request, attempt) for request in requests]
            try:
                played = await self.play(named, wanted)
            except EpisodesLost:
                wanted = None
                continue
            pairs = zip(played, requests, strict=True)
            return [replace(one, trajectory_id=request.trajectory_id) for one, request in pairs]
        raise AssertionError("counting does not end")

    async def pump(self, generator: int) -> None:
        """Deliver a generator's finished episodes for ever, those of its replacement as well.

        Consumes: what ``collect`` returns. Produces: resolved ``play`` calls, stamped with the
        trainer's version at this moment. Raises ``RunFailed`` when the generator died and is not
        replaced, or an environment raised.
        """
        seat = self._seats[generator]
        while True:
            try:
                finished = await self.ask(generator, lambda handle: handle.collect())
            except GeneratorDied as death:
                await self._replace(generator, death)
                continue
            for item in finished:
                self._deliver(seat, item)

    def _deliver(self, seat: Seat, item: Trajectory | EpisodeFailure) -> None:
        seat.ended(item.trajectory_id)
        if isinstance(item, EpisodeFailure):
            if item.trajectory_id not in self._waiting:
                return  # it failed before it could be told that nobody waits for it
            raise environment_failed(item)
        self._on_finished()
        finished = replace(item, completed_version=self._trainer_version())
        if seat.held is None:
            self._resolve(finished)
        else:
            seat.held.append(finished)

    def _resolve(self, finished: Trajectory) -> None:
        """Hand a trajectory to who waits for it: nobody, if it was lost before it came."""
        future = self._waiting.pop(finished.trajectory_id, None)
        if future is not None and not future.done():
            future.set_result(finished)

    def _lose(self, ids: Iterable[str], reason: LossReason) -> None:
        for lost in ids:
            future = self._waiting.pop(lost, None)
            if future is None:
                continue
            self.num_lost[reason] += 1
            if reason == "given_up":
                future.cancel()
            elif not future.done():
                future.set_exception(EpisodesLost(reason))

    def _give_up(self, generator: int, ids: Iterable[str]) -> None:
        """Have a generator end those of these episodes that it plays, without waiting for it."""
        seat = self._seats[generator]
        is_being_told = bool(seat.unwanted)
        seat.unwanted.update(seat.playing.intersection(ids))
        if seat.unwanted and not is_being_told:
            task = asyncio.ensure_future(self._tell(generator))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, generator: int) -> None:
        """Consumes what nobody waits for at one generator; produces free places there."""
        seat = self._seats[generator]
        while seat.unwanted:
            await self._have_ended(generator, sorted(seat.unwanted))

    async def _have_ended(self, generator: int, unwanted: Sequence[str]) -> None:
        seat = self._seats[generator]
        try:
            await self.ask(generator, lambda handle: handle.give_up(unwanted))
        except RunFailed as error:  # of one that died, its pump hears as well
            logger.warning("Episodes that nobody waits for may go on: %s", error)
            seat.unwanted.difference_update(unwanted)
        else:
            for each in unwanted:
                seat.ended(each)

    async def all_wait_for_tools(self) -> bool:
        """True when there are episodes in flight, and each of them waits for a tool to answer."""
        counts = (await self.of_living(lambda handle: handle.tools_waited_for())).values()
        playing = sum(count for _, count in counts)
        return 0 < playing <= sum(count for count, _ in counts)

    # -- weights ---------------------------------------------------------------------------------

    def trust(self, generators: Iterable[int]) -> None:
        """Give episodes to generators, which have proved their weights, until these change.

        What they gave back while they had not is handed on.
        """
        for index in generators:
            if index in self.given:  # or it has died since its proof
                for finished in self._seats[index].open():
                    self._resolve(finished)
        self._opened.set()

    def distrust(self, generators: Iterable[int]) -> None:
        """Lose what generators have played since their weights changed: these are not known."""
        for index in generators:
            lost = self._seats[index].disown()
            self._lose(lost, "unproved_weights")
            self._give_up(index, lost)

    async def some_live(self) -> None:
        """Wait until there is one that lives."""
        await self._lives.wait()

    async def drain(self) -> None:
        """Give out no more episodes, and wait until those in flight have ended."""
        for seat in self._seats:
            seat.is_open = False
        await asyncio.gather(*(seat.idle.wait() for seat in self._seats))

    async def publish(
        self, version: int, weights: Any, generators: Iterable[int] | None = None
    ) -> dict[int, str]:
        """Publish to generators, all that live unless some are named; returns checksums of what
        arrived, by generator.

        They get no more episodes until they are trusted again, and what they give back is held.
        """
        to = self.living if generators is None else list(generators)
        self.newcomers.difference_update(to)
        for index in to:
            self._seats[index].suspect()
        return await self.of_living(lambda handle: handle.publish(version, weights), to)

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> list[UpdateReport]:
        """Apply an ES update on every generator; no episodes until they are trusted again."""
        for seat in self._seats:
            seat.suspect()
        return await self.each(lambda handle: handle.update(version, seeds, coefficients, noise))

    # -- calls -----------------------------------------------------------------------------------

    async def each(
        self,
        call: Callable[[GeneratorHandle], Awaitable[T]],
        generators: Iterable[int] | None = None,
    ) -> list[T]:
        """The results of one call on generators, all unless some are named, run at once."""
        asked = range(len(self._seats)) if generators is None else generators
        return list(await asyncio.gather(*(self.ask(index, call) for index in asked)))

    async def of_living(
        self,
        call: Callable[[GeneratorHandle], Awaitable[T]],
        generators: Iterable[int] | None = None,
    ) -> dict[int, T]:
        """The results of one call by generator, without those that have died or die meanwhile."""
        living = self.living
        asked = living if generators is None else [i for i in generators if i in living]
        found = await asyncio.gather(*(self._unless_dead(index, call) for index in asked))
        return {index: result for each in found for index, result in each.items()}

    async def _unless_dead(
        self, generator: int, call: Callable[[GeneratorHandle], Awaitable[T]]
    ) -> dict[int, T]:
        try:
            return {generator: await self.ask(generator, call)}
        except GeneratorDied:
            return {}

    async def ask(self, generator: int, call: Callable[[GeneratorHandle], Awaitable[T]]) -> T:
        """The result of one call on one generator.

        Raises ``RunFailed``, which names it, when it fails; ``GeneratorDied`` when its process is
        gone and another one takes its place: its episodes are lost then.
        """
        seat = self._seats[generator]
        handle = seat.handle
        try:
            return await call(handle)
        except Exception as error:  # of whatever kind: from another process it comes wrapped
            failed = failure(f"Generator {generator} failed", error)
            if not (failed.is_transient and self.may_replace and self._replacement):
                raise failed from error
            if handle is seat.handle and not seat.is_gone:  # and not of one replaced since
                self.newcomers.discard(generator)
                self.unbriefed.discard(generator)
                self._lose(seat.vacate(), "generator_died")
                if not self.living:
                    self._lives.clear()
            raise GeneratorDied(str(failed), failed.details, is_transient=True) from error

    async def _replace(self, generator: int, death: GeneratorDied) -> None:
        """Have another generator started; it is a newcomer until it is given the weights."""
        assert self._replacement is not None  # or its death had been the run's
        logger.warning("%s Another one is started in its place.\n%s", death, death.details)
        seat = self._seats[generator]
        seat.handle = await self._replacement(generator)
        seat.is_gone = False
        self.newcomers.add(generator)
        self.unbriefed.add(generator)
        self.arrived.set()
        self._lives.set()


def _came(future: asyncio.Future[Trajectory]) -> Trajectory | None:
    """The trajectory, if it has come."""
    return None if future.cancelled() or future.exception() else future.result()
