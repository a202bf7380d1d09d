"""Episodes in flight on one generator.

::

    submit ─▶ waiting for a place ─▶ playing (at most ``max_concurrent``) ─▶ finished ─▶ collect
                                        │ the environment raised ─▶ EpisodeFailure ──────┘
                                        │ the engine failed ─▶ collect raises
                                        │ given up ─▶ nothing: its turn is cut, its place is free
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator

from lagoon.trajectory import Trajectory
from workers.actors.places import Places
from workers.environments.base import Environment, Message, Observation
from workers.rollout import EpisodeFailure, EpisodeRequest

CHECK_SECONDS = 1.0
"""How often a waiting ``collect`` looks whether the engine is alive: episodes that wait for a tool
would not notice."""


class ToolWatch:
    """Counts the episodes that wait for their environment's answer at this moment."""

    def __init__(self) -> None:
        self.waiting = 0

    def over(self, environment: Environment) -> Environment:
        """The environment, counted while it answers."""
        return _Watched(environment, self)


class _Watched:
    """An environment whose answers are waited for in the sight of a watch."""

    def __init__(self, environment: Environment, watch: ToolWatch) -> None:
        self._environment, self._watch = environment, watch

    async def start(self) -> tuple[Message, ...]:
        with self._counted():
            return await self._environment.start()

    async def step(self, text: str) -> Observation:
        with self._counted():
            return await self._environment.step(text)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._watch.waiting += 1
        try:
            yield
        finally:
            self._watch.waiting -= 1


class Episodes:
    """Plays episodes side by side and hands out the finished ones in batches."""

    def __init__(
        self,
        play: Callable[[EpisodeRequest], Awaitable[Trajectory]],
        check: Callable[[], None],
        fatal: type[Exception],
        max_concurrent: int,
    ) -> None:
        self._play = play
        self._check = check
        self._fatal = fatal
        self._places = Places(max_concurrent)
        self._playing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Those, and what has been given up and is not over."""
        self._finished: list[Trajectory | EpisodeFailure] = []
        self._failure: Exception | None = None
        self._changed = asyncio.Event()

    def submit(self, requests: Iterable[EpisodeRequest]) -> None:
        """Start episodes as soon as there is a place for them, in this order."""
        for request in requests:
            task = asyncio.create_task(self._play_one(request))
            self._playing[request.trajectory_id] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def give_up(self, names: Iterable[str]) -> None:
        """End episodes, of which nothing is collected: what they wait for is cancelled, a turn in
        the engine or an answer of the environment, and they make room as soon as that has ended.
        """
        for name in names:
            if task := self._playing.pop(name, None):
                task.cancel()

    def resize(self, places: int) -> None:
        """Play that many at once from now on; those that are played go on."""
        self._places.resize(places)

    @property
    def num_playing(self) -> int:
        """Episodes that were submitted, and have neither ended nor been given up."""
        return len(self._playing)

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        """Wait for at least one finished episode, and return all finished ones.

        Raises what made the engine unusable, within seconds, whatever the episodes are waiting for.
        """
        while not self._changed.is_set():
            self._check()
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        finished, self._finished = self._finished, []
        return finished

    async def _play_one(self, request: EpisodeRequest) -> None:
        found: Trajectory | EpisodeFailure
        try:
            async with self._places:
                found = await self._play(request)
        except self._fatal as error:
            self._failure = error
            self._changed.set()
            return
        except Exception as error:  # an environment's bug must reach the driver, not end the task
            message = f"{type(error).__name__}: {error}"
            found = EpisodeFailure(request.trajectory_id, message, traceback.format_exc())
        if self._playing.pop(request.trajectory_id, None):  # or it was given up
            self._finished.append(found)
            self._changed.set()
