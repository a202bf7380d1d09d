"""What people want of a run that goes on, from the thread that hears of it to the loop.

::

    API ─▶ its answer to a batch of events ─▶ deliver ─▶ [inbox] ─▶ take, between two updates
                                                                     └─▶ config, is_paused: read by
                                                                         whoever decides something
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from lagoon.clashes import Clash
from lagoon.config import RunConfig
from lagoon.controls import Change, Controlled, Refused
from lagoon.problems import FieldProblem
from workers.engine_settings import places_per_generator


class Steerable(Protocol):
    """A generator, as far as its pace is concerned."""

    async def steer(self, places: int, *, is_paused: bool) -> None:
        """Play at most ``places`` episodes at once; while paused sample nothing, and keep what is
        in flight. Saying it twice changes nothing."""
        ...


class Controls:
    """The settings that a run goes by, and how long it was held.

    Deliveries come from any thread; all else belongs to the loop's.
    """

    def __init__(
        self,
        config: RunConfig,
        changes: Iterable[Change] = (),
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        """``changes``: those that the attempt begins with; they are in ``config`` at once, and are
        said with the first that are taken."""
        self._state = Controlled(config)
        self._newest = 0
        self._lock = threading.Lock()
        self._inbox: dict[int, Change] = {}
        self._wake: Callable[[], None] = lambda: None
        self._unsaid: list[int] = []
        self._refused: dict[int, str] = {}
        self._unfit: Callable[[RunConfig], Sequence[Clash]] = lambda _: ()
        self._stopwatch = stopwatch
        self._held_seconds, self._held_since = 0.0, float("nan")
        self._is_held = False
        self.deliver(changes)
        self._put_into_effect()
        self.in_force = (places_per_generator(self.config), False)
        """What the generators were told last, or began with: places, and whether they are held."""

    @property
    def config(self) -> RunConfig:
        """The run's configuration as it is now."""
        return self._state.config

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be sampled, nor trained on."""
        return self._state.is_paused

    @property
    def wanted(self) -> tuple[int, bool]:
        """What the generators are to be told: places, and whether they are held."""
        return places_per_generator(self.config), self.is_paused

    # -- from any thread -------------------------------------------------------------------------

    def deliver(self, changes: Iterable[Change]) -> None:
        """Changes that may have been delivered before; those that were not wait to be taken."""
        with self._lock:
            for change in changes:
                if change.number > self._newest:
                    self._inbox[change.number] = change
            if self._inbox:
                self._wake()

    # -- in the loop -----------------------------------------------------------------------------

    def refuse(self, unfit: Callable[[RunConfig], Sequence[Clash]]) -> None:
        """Refuse changes from now on whose configuration has clashes by ``unfit``: what is known
        here, and not by the API. The attempt that begins with one could not start."""
        self._unfit = unfit

    def connect(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called in the running event loop whenever there is news."""
        loop = asyncio.get_running_loop()

        def from_any_thread() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                loop.call_soon_threadsafe(wake)

        with self._lock:
            self._wake = from_any_thread

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return bool(self._inbox or self._unsaid or self._refused)

    def take(self) -> tuple[Sequence[int], dict[int, str]]:
        """Put what was delivered into effect. Returns the numbers of what holds, and the reasons
        of what cannot be honoured, as far as neither was returned before."""
        self._put_into_effect()
        said = self._unsaid, self._refused
        self._unsaid, self._refused = [], {}
        return said

    def _put_into_effect(self) -> None:
        with self._lock:
            delivered = [self._inbox[number] for number in sorted(self._inbox)]
            self._inbox.clear()
            self._newest = max([self._newest, *(change.number for change in delivered)])
        for change in delivered:
            try:
                changed = self._state.after(change.settings)
                self._refuse_unfit(changed.config)
            except Refused as refused:
                self._refused[change.number] = str(refused)
            else:
                self._state = changed
                self._unsaid.append(change.number)

    def _refuse_unfit(self, config: RunConfig) -> None:
        if problems := [FieldProblem(found.fields, found.message) for found in self._unfit(config)]:
            raise Refused(problems)

    # -- time ------------------------------------------------------------------------------------

    def stopwatch(self) -> float:
        """Monotonic seconds that stand still while the run is held: a pause is no training."""
        return (self._held_since if self._is_held else self._stopwatch()) - self._held_seconds

    def hold_time(self) -> None:
        """From here on no time passes."""
        self._held_since, self._is_held = self._stopwatch(), True

    def release_time(self) -> None:
        """Time goes on."""
        self._held_seconds += self._stopwatch() - self._held_since
        self._is_held = False
