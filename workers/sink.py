"""Where a run's events go: numbered batches through a spool to the API, or a JSONL file.

::

    log() ─▶ queue ─▶ [writer thread] ─▶ spool (files, bounded) ─▶ [sender thread] ─▶ API
                       every 0.25 s        one EventBatch a line       retries with back-off

``PlatformSink.log`` never blocks and never raises: training is not stopped by telemetry. The API
may be away: batches wait in the spool and are sent in order when it is back, each exactly once. A
batch that the API refuses as it is becomes a line of the log that says so. What happens past the
spool's quota, and on a full disk, is in ``workers/spool.py``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import httpx
from pydantic import TypeAdapter

from lagoon.controls import Change
from lagoon.events import MAX_BATCH_PARTS, Event, EventBatch, LogLogged, num_parts
from workers.segments import Segment
from workers.settings import DEFAULT_QUOTA_BYTES
from workers.spool import Spool

MAX_BATCH = 1000
"""Events a batch holds at most: well under the API's limit on their number."""
MAX_BATCH_BYTES = 4 * 1024**2
"""Size above which a batch is split: half of the API's limit."""
FLUSH_SECONDS = 10.0
"""How long a flush waits at most: telemetry never stops a run."""
FENCED_OUT = frozenset({401, 403, 404, 409})
"""The API's answers to a driver that is no longer the attempt's: it has to stop."""
PROBLEM, TRY_AGAIN = "urn:lagoon:problem:", "urn:lagoon:problem:changed-meanwhile"
REFUSED = frozenset({413, 422})
"""Answers to a batch that will never be accepted."""
CHANGES = TypeAdapter(list[Change])

logger = logging.getLogger(__name__)


def fences_out(answer: httpx.Response) -> bool:
    """Whether the API says that the attempt is not this driver's.

    A proxy, or whatever else has the API's port while that is away, says nothing about it.
    """
    words = answer.text
    return answer.status_code in FENCED_OUT and PROBLEM in words and TRY_AGAIN not in words


class Sink(Protocol):
    """Takes events."""

    def log(self, event: Event) -> None:
        """Record an event; returns at once."""
        ...

    def flush(self) -> None:
        """Return when what was logged before outlives this process, as far as the disk takes it."""
        ...

    def close(self) -> bool:
        """Flush everything; True when all of it has arrived."""
        ...


class JsonlSink:
    """One event a line in a local file of its own: runs without a platform."""

    def __init__(self, path: Path) -> None:
        """Raises ``FileExistsError`` for a file that is there: it holds another run's events."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
        self._path, self._file = path, Segment(1, path)
        self._lock = threading.RLock()
        self._num_lost = 0

    def log(self, event: Event) -> None:
        """Append the event. While the disk takes nothing events are lost, and training goes on."""
        with self._lock:
            try:
                self._file.append(event.model_dump_json().encode())
            except OSError as error:
                self._num_lost += 1
                if self._num_lost == 1:  # the message itself is an event
                    logger.error(
                        "%s cannot be written (%s): events are lost while that lasts; training "
                        "goes on",
                        self._path,
                        error,
                    )

    def flush(self) -> None:
        """Nothing to do: each event is written at once."""

    def close(self) -> bool:
        """True when no event was lost."""
        return not self._num_lost


class PlatformSink:
    """Events to the API by way of a spool on the local disk."""

    def __init__(
        self,
        client: httpx.Client,
        attempt_id: str,
        spool: Path,
        on_stop: Callable[[], None],
        *,
        on_fenced: Callable[[], None] | None = None,
        on_changes: Callable[[Sequence[Change]], None] = lambda _: None,
        writer: str = "driver",
        period_seconds: float = 0.25,
        drain_seconds: float = 300.0,
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
    ) -> None:
        """``client`` carries the attempt's credential; ``spool`` is a folder of the attempt's own;
        ``on_stop`` is called when the API says that a stop was asked for, ``on_fenced`` when the
        attempt is no longer this driver's, ``on_changes`` with changed settings, until the API
        has heard that they hold."""
        self._client, self._url = client, f"/api/v1/attempts/{attempt_id}/events"
        self._on_stop, self._writer = on_stop, writer
        self._on_fenced, self._on_changes = on_fenced or on_stop, on_changes
        self._period, self._drain = period_seconds, drain_seconds
        self._spool = Spool(spool, writer=writer, quota_bytes=quota_bytes)
        self._queue: queue.SimpleQueue[Event | threading.Event | None] = queue.SimpleQueue()
        self._awaited: list[threading.Event] = []
        """To be set when what came before them is in the spool."""
        self._all_written = False
        self._told: set[int] = set()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"sink-{name}", daemon=True)
            for name, work in (("writer", self._write), ("sender", self._send))
        ]
        for thread in self._threads:
            thread.start()

    def log(self, event: Event) -> None:
        """Queue the event."""
        self._queue.put(event)

    def flush(self) -> None:
        """Wait until what was logged before is in the spool."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(FLUSH_SECONDS)

    def close(self) -> bool:
        """Write and send what is left, for a bounded time."""
        self._queue.put(None)
        self._threads[0].join(self._drain)
        self._closing.set()
        self._spool.close()
        self._threads[1].join(self._drain)
        return self._all_written and self._spool.num_sent == self._spool.num_written

    def _write(self) -> None:
        open_ended = True
        while open_ended:
            events, open_ended = self._next_events()
            events = self._spool.admitted(events)
            self._append(events + self._spool.notices(time.time()))
            while self._awaited:
                self._awaited.pop().set()
        while notices := self._spool.notices(time.time(), is_last=True):
            self._append(notices)
        self._all_written = True

    def _append(self, events: list[Event]) -> None:
        for body in self._batches(events):
            self._spool.append(body.encode())

    def _batches(self, events: list[Event]) -> Iterator[str]:
        """The events as numbered batches of bounded size."""
        if not events:
            return
        if len(events) == 1 or num_parts(events) <= MAX_BATCH_PARTS:
            number = self._spool.num_written + 1
            body = EventBatch(writer=self._writer, number=number, events=tuple(events))
            text = body.model_dump_json()
            if len(text) <= MAX_BATCH_BYTES or len(events) == 1:
                yield text
                return
        half = len(events) // 2
        yield from self._batches(events[:half])
        yield from self._batches(events[half:])

    def _next_events(self) -> tuple[list[Event], bool]:
        """Events of the next batch, and whether more may come."""
        first = self._queue.get()
        if first is None:
            return [], False
        if isinstance(first, threading.Event):
            self._awaited.append(first)
            return [], True
        self._closing.wait(self._period)  # let a batch gather
        events = [first]
        while len(events) < MAX_BATCH:
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                break
            if event is None:
                return events, False
            if isinstance(event, threading.Event):
                self._awaited.append(event)
                break
            events.append(event)
        return events, True

    def _send(self) -> None:
        while (body := self._spool.peek()) is not None:
            if not self._deliver(body.decode()):
                return
            self._spool.delivered()

    def _deliver(self, body: str) -> bool:
        """Send one batch until it arrives; False when it never will."""
        delay, waited, is_replaced = 0.25, 0.0, False
        while True:
            status, answer = self._post(body)
            if status == 202:
                return True
            if status in FENCED_OUT:
                return self._fenced_out(answer)
            if status in REFUSED and not is_replaced:
                body, is_replaced = self._instead_of(body, answer), True
                continue
            if self._closing.is_set() and waited >= self._drain:
                return False
            self._tell_once(status, answer)
            if self._closing.is_set():
                waited += delay
                time.sleep(delay)
            else:
                self._closing.wait(delay)
            delay = min(delay * 2, 5.0)

    def _tell_once(self, status: int, answer: str) -> None:
        """One warning for each kind of trouble: a warning is an event, which has to be sent."""
        level = logging.DEBUG if status in self._told else logging.WARNING
        self._told.add(status)
        logger.log(level, "events wait in the spool: %s", answer)

    def _post(self, body: str) -> tuple[int, str]:
        """The API's status and answer; 0 when what answered, if anything, was not the API."""
        try:
            response = self._client.post(
                self._url, content=body, headers={"content-type": "application/json"}
            )
        except (httpx.HTTPError, OSError) as error:
            return 0, str(error)
        answer = f"{response.status_code} {response.text[:300]}"
        if response.status_code == 202:
            try:
                found = response.json()
                stop_requested = bool(found["stop_requested"])
                changes = CHANGES.validate_python(found.get("changes", []))
            except (ValueError, TypeError, KeyError):
                return 0, f"not the API's: {answer}"
            if changes:
                self._on_changes(changes)
            if stop_requested:
                self._on_stop()
        if response.status_code in FENCED_OUT and not fences_out(response):
            return 0, f"no word on the attempt: {answer}"
        return response.status_code, answer

    def _instead_of(self, body: str, answer: str) -> str:
        """A batch of the same number that says what was refused."""
        refused = EventBatch.model_validate_json(body)
        line = f"{len(refused.events)} events were refused by the API and were not stored"
        events = (LogLogged(at=refused.events[0].at, lines=(f"{line}: {answer}",)),)
        return EventBatch(
            writer=refused.writer, number=refused.number, events=events
        ).model_dump_json()

    def _fenced_out(self, answer: str) -> bool:
        logger.warning("the API no longer takes this driver's events: %s", answer)
        self._on_fenced()
        return False
