"""One driver's right to write among a run's files: the newest one that claimed it has it.

::

    a newer driver ──takes──▶ attempts/RUN-a1/claim ◀──looked at, under a lock── an older one,
                              (attempt, fencing token)                           before each write
                                                                                 that counts

The platform refuses the word of a driver that was replaced, but a driver that does not hear from
the platform does not know, and a thread that writes goes on when its loop is cancelled. So whoever
seals a checkpoint, adds to a log of updates or removes weights looks here first. What an older
driver had written before then stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

MAX_BYTES = 100


class FencedOut(Exception):
    """The attempt is not, or no longer, this driver's to run."""


class Claim:
    """What a driver holds as long as no newer one of its run has taken it."""

    def __init__(
        self, path: Path, attempt: int, token: int, is_fenced: Callable[[], bool] = lambda: False
    ) -> None:
        """``path`` is the same for all attempts of a run; ``token`` is the fencing token;
        ``is_fenced``: whether the platform has said that the attempt is not this driver's."""
        self._path, self._mine, self._is_fenced = path, (attempt, token), is_fenced

    def take(self) -> None:
        """Take it from any older driver. Raises ``FencedOut`` when a newer one has it.

        A disk that takes nothing costs the protection, not the run.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self._path, os.O_RDWR | os.O_CREAT) as descriptor:
                self._refuse_older(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, " ".join(map(str, self._mine)).encode(), 0)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody takes it while the block lasts. Raises ``FencedOut`` when somebody had before.

        A disk that cannot tell, or a file system without locks, costs the protection alone, too.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # nobody has claimed anything, or none could
                self._refuse_older(stack.enter_context(_locked(self._path, os.O_RDONLY)))
            if self._is_fenced():
                raise FencedOut("The platform no longer takes this driver's word.")
            yield

    def check(self) -> None:
        """Raise ``FencedOut`` when it is another driver's."""
        with self.held():
            pass

    def _refuse_older(self, descriptor: int) -> None:
        newest = _claimed(os.pread(descriptor, MAX_BYTES, 0))
        if newest > self._mine:
            raise FencedOut(
                f"A newer driver (attempt {newest[0]}, fencing token {newest[1]}) has taken the "
                "run over; this one writes nothing any more."
            )


class Unclaimed(Claim):
    """Of a run without a platform, whose only driver it is."""

    def __init__(self) -> None:
        super().__init__(Path(), 0, 0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Always."""
        yield


UNCLAIMED = Unclaimed()


@contextlib.contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _claimed(text: bytes) -> tuple[int, int]:
    """Attempt and token; zeros for a file that was being written when its machine died."""
    try:
        attempt, token = map(int, text.split())
    except ValueError:
        return 0, 0
    return attempt, token
