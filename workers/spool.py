"""The spool: a run's batches between its driver and the API, in bounded room.

::

    append ─▶ [segment][segment]…[segment][open segment] ─▶ peek, delivered
               delivered: removed      ▲
                                       └── past the quota: reduced in place, stage by stage

A segment is a file; while the disk takes nothing, it is in memory, with a quota of its own. Either
way a batch keeps its number whatever is dropped of it, so nothing is ever sent twice or skipped.
What the quota costs is told to the platform by a ``TelemetryDropped`` event.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from lagoon.dropping import NUM_STAGES, Dropped, fully_reduced, make_room, reduced
from lagoon.events import DropCause, Event, EventBatch, LogLogged, TelemetryDropped
from workers.segments import Segment
from workers.settings import DEFAULT_QUOTA_BYTES

MEMORY_QUOTA_BYTES = 64 * 1024**2
KEPT_BYTES = 64 * 1024**2
"""Delivered batches that stay, within the quota, for whoever looks into what was sent."""
MAX_SEGMENT_BYTES = 8 * 1024**2
NOTICE_SECONDS = 60.0
"""Time between two notices of what was dropped."""

logger = logging.getLogger(__name__)


class Spool:
    """Batches in order. One thread appends, another takes."""

    def __init__(
        self,
        folder: Path,
        *,
        writer: str = "driver",
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
        memory_quota_bytes: int = MEMORY_QUOTA_BYTES,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        """A spool in a folder of its own; what the disk says against it does not stop it.

        What is there is of a driver of the same attempt that was never heard, or the platform would
        not have let this one start: its numbers are used anew.
        """
        for path in folder.glob("*.jsonl"):
            with contextlib.suppress(OSError):
                path.unlink()
        self._folder, self._writer = folder, writer
        self._quotas: dict[DropCause, int] = {"quota": quota_bytes, "disk": memory_quota_bytes}
        self._segment_bytes = min(MAX_SEGMENT_BYTES, quota_bytes // 16)
        self._stopwatch = stopwatch
        self._segments: deque[Segment] = deque()
        self._changed = threading.Condition()
        self.num_written, self.num_sent = 0, 0
        self._is_closed = self._is_disk_failing = False
        self._full: set[DropCause] = set()
        self._dropped: dict[DropCause, Dropped] = {"quota": Dropped(), "disk": Dropped()}
        self._noticed: float | None = None

    @property
    def num_bytes(self) -> int:
        """The room that it takes on the disk."""
        return _num_bytes(self._of("quota"))

    def admitted(self, events: Sequence[Event]) -> list[Event]:
        """New events that there is room for: all, unless what is never dropped fills it."""
        kept = list(events)
        for cause in sorted(self._full):  # there may be room by now
            self._fit(cause, 0)
        for cause in sorted(self._full):
            kept, dropped = fully_reduced(kept)
            self._dropped[cause] += dropped
        return kept

    def notices(self, at: float, *, is_last: bool = False) -> list[Event]:
        """What was dropped since the last notice; nothing when that was a moment ago."""
        now = self._stopwatch()
        if self._noticed is not None and now - self._noticed < NOTICE_SECONDS and not is_last:
            return []
        found: list[Event] = []
        for cause, dropped in self._dropped.items():
            if dropped:
                found.append(TelemetryDropped(at=at, cause=cause, counts=dict(dropped)))
                self._dropped[cause] = Dropped()
                self._noticed = now
        return found

    def append(self, body: bytes) -> None:
        """Keep the batch that follows the newest one."""
        self._discard_delivered(min(KEPT_BYTES, self._quotas["quota"] // 2))
        self._fit("quota", len(body) + 1)
        with self._changed:
            self._place(body)
            self.num_written += 1
            self._changed.notify_all()
        self._fit("disk", 0)

    def close(self) -> None:
        """Nothing more is appended: who waits for a batch learns that there is none."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def peek(self) -> bytes | None:
        """The oldest batch that is not delivered, as soon as there is one; None at the end.

        It is not changed any more: it may have arrived already, with its answer lost.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.num_sent < self.num_written or self._is_closed)
            if self.num_sent == self.num_written:
                return None
            number = self.num_sent + 1
            segment = next(each for each in self._segments if each.last_number >= number)
            try:
                return segment.read(number)
            except OSError as error:
                return self._unreadable(number, error)

    def delivered(self) -> None:
        """The batch that was peeked at has arrived."""
        with self._changed:
            self.num_sent += 1

    def _of(self, cause: DropCause) -> list[Segment]:
        """The segments on the disk, or those in memory."""
        return [each for each in self._segments if (each.path is None) == (cause == "disk")]

    def _place(self, body: bytes) -> None:
        """Append to a file; to memory, when the disk will not have it."""
        try:
            self._append_to(self._open_segment("quota"), body)
        except OSError as error:
            self._tell_disk(error)
            self._discard_delivered(0)  # so that there may be room for the next one
            self._append_to(self._open_segment("disk"), body)
        else:
            self._tell_disk(None)

    def _append_to(self, segment: Segment, body: bytes) -> None:
        is_new = not segment.num_bytes
        try:
            segment.append(body)
        except OSError:
            if is_new:
                segment.remove()
            raise
        if is_new:
            self._segments.append(segment)

    def _open_segment(self, cause: DropCause) -> Segment:
        """The newest segment, if it is of that kind and takes another batch; else a new one.

        Only what went through the same stages as new events do stands in one segment.
        """
        stage = NUM_STAGES if self._full else 0
        newest = self._segments[-1] if self._segments else None
        if (
            newest is not None
            and (newest.path is None) == (cause == "disk")
            and newest.stage == stage
            and newest.num_bytes < self._segment_bytes
        ):
            return newest
        number, path = self.num_written + 1, None
        if cause == "quota":
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{number:010d}.jsonl"
        return Segment(number, path, stage)

    def _tell_disk(self, error: OSError | None) -> None:
        """One line when the disk begins to fail, and one when it works again."""
        was_failing, self._is_disk_failing = self._is_disk_failing, error is not None
        if error is not None and not was_failing:
            logger.warning(
                "the spool of the run's events, %s, cannot be written (%s): events are kept in "
                "memory until there is room; training goes on, and saved weights are safe",
                self._folder,
                error,
            )
        elif error is None and was_failing:
            logger.info("the spool of the run's events can be written again")

    def _discard_delivered(self, kept_bytes: int) -> None:
        """Give back the room of delivered segments; ``kept_bytes`` of files may stay."""
        with self._changed:
            done = [each for each in self._segments if each.last_number <= self.num_sent]
            for segment in reversed(done):
                kept_bytes -= segment.num_bytes if segment.path else 0
                if segment.path is None or kept_bytes < 0:
                    self._segments.remove(segment)
                    segment.remove()

    def _fit(self, cause: DropCause, more_bytes: int) -> None:
        """Make room for ``more_bytes`` within the quota.

        Delivered files go first. What must be dropped then makes a quarter of the quota free, so
        that this is rare.
        """
        quota = self._quotas[cause]
        if _num_bytes(self._of(cause)) + more_bytes > quota:
            self._discard_delivered(0)
        excess = _num_bytes(self._of(cause)) + more_bytes - quota
        if excess > 0:
            portions = [_Portion(each, self, cause) for each in self._of(cause)]
            excess = make_room(portions, excess + quota // 4) - quota // 4
        self._full = self._full | {cause} if excess > 0 else self._full - {cause}

    def advance(self, segment: Segment, cause: DropCause) -> None:
        """Take a segment through the next stage, unless its batches are on their way."""
        with self._changed:
            if segment.first_number <= self.num_sent + 1:
                return
            kept: list[bytes] = []
            dropped = Dropped()
            try:
                for number in range(segment.first_number, segment.last_number + 1):
                    batch = EventBatch.model_validate_json(segment.read(number))
                    events, more = reduced(batch.events, segment.stage)
                    dropped += more
                    smaller = batch.model_copy(update={"events": tuple(events)})
                    kept.append(smaller.model_dump_json().encode())
                segment.rewrite(kept)
            except OSError as error:
                self._tell_disk(error)
                return
            segment.stage += 1
            self._dropped[cause] += dropped

    def _unreadable(self, number: int, error: OSError) -> bytes:
        """A batch of that number which says that its events are lost."""
        line = f"the events of batch {number} cannot be read from the spool any more: {error}"
        events = (LogLogged(at=time.time(), lines=(line,)),)
        batch = EventBatch(writer=self._writer, number=number, events=events)
        return batch.model_dump_json().encode()


class _Portion:
    """A segment as ``make_room`` sees it."""

    def __init__(self, segment: Segment, spool: Spool, cause: DropCause) -> None:
        self._segment, self._spool, self._cause = segment, spool, cause

    @property
    def stage(self) -> int:
        return self._segment.stage

    @property
    def num_bytes(self) -> int:
        return self._segment.num_bytes

    def advance(self) -> None:
        self._spool.advance(self._segment, self._cause)


def _num_bytes(segments: Sequence[Segment]) -> int:
    return sum(each.num_bytes for each in segments)
