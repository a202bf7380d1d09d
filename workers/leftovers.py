"""What a driver had written and not sent when it died, delivered from its spool.

::

    spool: 0000000001.jsonl  …  0000000940.jsonl      a line is a batch; a file's name is the number
              │                      │                of its first
              ▼                      ▼
    the first line that is there ─▶ API: "941 is the last I have" ─▶ from 942 on, one by one
                                                                     └─▶ all of it: ``delivered``

The numbers decide: a batch that has arrived is acknowledged and changes nothing, so that any number
of workers may be at it, and a task that ends half-way is gone on with by the next. A line that the
kill cut short was never sent and is left out. In the place of a batch that is not there (it was in
memory, while the disk was full) or cannot be stored goes a line of the log that says so.

Only a worker on a machine that sees the folder can deliver it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import httpx

from lagoon.events import EventBatch, LogLogged
from lagoon.spools import DELIVERED, is_delivered, spool_of
from workers.platform import Platform, PlatformFailed
from workers.sink import PROBLEM, REFUSED

WRITER = "driver"
GAP, NOT_GONE = "batch-gap", "attempt-not-gone"
NEVER = frozenset({"not-found", "fenced-out"})
"""The API's answers to what nobody wants: the run was deleted, or the driver was replaced."""

Outcome = Literal["all", "more", "later"]
"""Everything has arrived, or nobody will ever want it; there is more, or another is at it; nothing
can be done now: the platform says that the driver may be alive, or the spool cannot be read."""

logger = logging.getLogger(__name__)


class SpoolLeft(Exception):
    """Not all of a dead driver's events have arrived yet."""


def deliver_all(
    attempt_ids: Sequence[str],
    platform: Platform,
    home: Path,
    seconds: float,
    stopwatch: Callable[[], float] = time.monotonic,
) -> None:
    """Deliver what is left of some attempts' spools, one after the other, for a bounded time.

    One over which the API fails holds up no other. Raises ``httpx.TransportError`` when it is away.
    """
    deadline = stopwatch() + seconds
    for attempt_id in attempt_ids:
        try:
            deliver(attempt_id, platform, home, deadline, stopwatch)
        except PlatformFailed as error:
            logger.warning("the spool of attempt %s is not delivered now: %s", attempt_id, error)


def deliver_before(attempt_id: str, platform: Platform, home: Path, seconds: float) -> None:
    """Deliver what the earlier attempts of the same run left, so that what they announced is known
    before this one begins.

    Raises ``SpoolLeft`` when that takes longer, and what ``deliver`` raises. What cannot be
    delivered now does not hold up the run.
    """
    run_id, _, number = attempt_id.rpartition("-a")
    deadline = time.monotonic() + seconds
    for earlier in (f"{run_id}-a{n}" for n in range(1, int(number))):
        spool = spool_of(home, earlier)
        if not spool.is_dir() or is_delivered(spool):
            continue
        if deliver(earlier, platform, home, deadline, is_gone=False) == "more":
            raise SpoolLeft(f"the spool of attempt {earlier} is being delivered")


def deliver(
    attempt_id: str,
    platform: Platform,
    home: Path,
    deadline: float,
    stopwatch: Callable[[], float] = time.monotonic,
    *,
    is_gone: bool = True,
) -> Outcome:
    """Deliver what is left of an attempt's spool until ``deadline``, by the stopwatch.

    ``is_gone``: nobody writes to it any more, so that its end is the end.

    Raises ``PlatformFailed`` or ``httpx.TransportError`` when the API fails or is away: a later try
    goes on.
    """
    spool = spool_of(home, attempt_id)
    delivery = _Delivery(attempt_id, platform, deadline, stopwatch)
    try:
        with _alone(spool) as is_alone:
            outcome = delivery.of(spool) if is_alone else "more"
            if outcome == "all" and is_gone:
                (spool / DELIVERED).touch()
                logger.info("the spool of attempt %s is delivered to its end", attempt_id)
        return outcome
    except PlatformFailed:
        raise
    except (httpx.HTTPStatusError, OSError) as error:
        logger.warning("the spool of attempt %s is not delivered now: %s", attempt_id, error)
        return "later"


class _Delivery:
    """One attempt's batches on their way."""

    def __init__(
        self,
        attempt_id: str,
        platform: Platform,
        deadline: float,
        stopwatch: Callable[[], float],
    ) -> None:
        self._attempt_id, self._platform = attempt_id, platform
        self._deadline, self._stopwatch = deadline, stopwatch
        self._accepted = 0
        """The newest batch that the API said it has."""

    def of(self, spool: Path) -> Outcome:
        """Send what the API does not have."""
        for number, body in _batches(spool, lambda: self._accepted):
            outcome = self._send(number, body)
            if outcome is not None:
                return outcome
        return "all" if self._accepted else "later"  # nothing there may be nothing there yet

    def _send(self, number: int, body: bytes) -> Outcome | None:
        """Have the API take a batch; None when it has it."""
        is_replaced = False
        while self._stopwatch() < self._deadline:
            answer = self._platform.take_left(self._attempt_id, body)
            if answer.status_code == httpx.codes.ACCEPTED:
                self._accepted = int(answer.json()["accepted_number"])
                return None
            problem = _problem(answer)
            if answer.status_code in REFUSED and not is_replaced:
                words = f"events that the driver left were refused by the API: {answer.text[:300]}"
                body, is_replaced = _instead(number, words), True
            elif problem == GAP:
                self._fill(int(answer.json()["expected_number"]), number)
            elif problem == NOT_GONE:
                return "later"
            elif problem in NEVER:
                return "all"
            else:
                answer.raise_for_status()
        return "more"

    def _fill(self, first: int, end: int) -> None:
        """Have the API go on from batch ``end`` without those before it."""
        words = f"the events of batches {first} to {end - 1} died with the driver"
        for number in range(first, end):
            if self._stopwatch() >= self._deadline:
                return
            body = _instead(number, words if number == first else "")
            self._platform.take_left(self._attempt_id, body)


def _batches(spool: Path, accepted: Callable[[], int]) -> Iterator[tuple[int, bytes]]:
    """The whole lines after the first and those that are ``accepted``, with their numbers."""
    paths = sorted(spool.glob("*.jsonl"))
    for path, following in itertools.zip_longest(paths, paths[1:]):
        if following is not None and int(following.stem) <= accepted() + 1:
            continue
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last one was cut short
        for number, line in enumerate(lines, start=int(path.stem)):
            if number > accepted():
                yield number, line


def _instead(number: int, words: str) -> bytes:
    """A batch of that number which says what has become of its events; of empty words, nothing."""
    events = (LogLogged(at=time.time(), lines=(words,)),) if words else ()
    return EventBatch(writer=WRITER, number=number, events=events).model_dump_json().encode()


def _problem(answer: httpx.Response) -> str:
    """The kind of problem that the API names; empty when there is none, or it is not the API's."""
    try:
        return str(answer.json()["type"]).removeprefix(PROBLEM)
    except (ValueError, TypeError, KeyError):
        return ""


@contextlib.contextmanager
def _alone(spool: Path) -> Iterator[bool]:
    """Whether nobody else on this machine is at the same spool: two would only do the same work."""
    descriptor = os.open(spool, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            is_alone = False
        yield is_alone
    finally:
        os.close(descriptor)
