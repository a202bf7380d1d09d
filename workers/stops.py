"""Ways to end a run early, from any thread: ask it to stop, or take it away from its driver.

::

    a person, Ctrl-C, lagoon down ─▶ request ─▶ the loop ends its step, saves, ends
    a signal long after that, Ray  ─▶ abandon ─▶ the loop is cancelled; nothing more is saved
    a newer driver of the attempt  ─▶ fence ───▶ the same: what it would write is another's by now
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""A signal that comes this long after a request to stop means: at once. Sooner it may be the same
request by another way."""

FENCED = (
    "The platform no longer takes this driver's word: another one has its attempt, or the attempt "
    "is over. It ended at once and saved nothing."
)
ABANDONED = (
    "It was told again to stop before it had saved its weights, and ended without; checkpoints "
    "that were saved before are safe."
)


class StopSwitch:
    """Asks a run to stop, from any thread; what was asked before the run listens is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = self._fenced = False
        self._on_request: Callable[[], object] | None = None
        self._on_fence: Callable[[], object] | None = None

    @property
    def is_fenced(self) -> bool:
        """True when the run is no longer this driver's."""
        return self._fenced

    def request(self) -> None:
        """Ask the run to stop."""
        with self._lock:
            self._requested = True
            if self._on_request is not None:
                self._on_request()

    def fence(self) -> None:
        """Have the run end at once, without a trace of its own: it is another driver's."""
        with self._lock:
            self._fenced = True
            if self._on_fence is not None:
                self._on_fence()

    def connect(self, on_request: Callable[[], object], on_fence: Callable[[], object]) -> None:
        """Call one of the two at the next request or fence, and now if there was one."""
        with self._lock:
            self._on_request, self._on_fence = on_request, on_fence
            if self._requested:
                on_request()
            if self._fenced:
                on_fence()

    def disconnect(self) -> None:
        """Stop listening."""
        with self._lock:
            self._on_request = self._on_fence = None


class Patience:
    """Tells a first request to stop from one that means "at once"."""

    def __init__(
        self, stop: asyncio.Event, abandon: asyncio.Event, stopwatch: Callable[[], float]
    ) -> None:
        self._stop, self._abandon, self._stopwatch = stop, abandon, stopwatch
        self._asked_at: float | None = None

    def ask(self) -> None:
        """A request that never means more than it says, however often it comes."""
        if self._asked_at is None:
            self._asked_at = self._stopwatch()
        self._stop.set()

    def ask_again(self) -> None:
        """A request that means "at once" when there was one a while ago."""
        asked_at = self._asked_at
        if asked_at is not None and self._stopwatch() - asked_at >= PATIENCE_SECONDS:
            self._abandon.set()
        self.ask()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a blocking call, in a thread that nobody waits for after a cancellation.

    Those of ``asyncio.to_thread`` are waited for before the process can end, and a run that is
    stopped while its model is fetched would stay until it is. What writes a run's own files belongs
    there for that very reason; what only fetches or reads belongs here.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # cancelled meanwhile
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is one without an error

    def work() -> None:
        try:
            result, error = function(*arguments), None
        except BaseException as raised:  # whatever it is, the caller must hear of it
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=f"apart-{function.__name__}", daemon=True).start()
    return await future
