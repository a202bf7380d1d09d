"""A segment of the spool: consecutive batches, one a line, in a file or in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path


class Segment:
    """Batches from ``first_number`` on; in memory when ``path`` is None.

    Methods raise ``OSError`` when the disk fails, with the segment as it was.
    """

    def __init__(self, first_number: int, path: Path | None, stage: int = 0) -> None:
        self.first_number = first_number
        self.path = path
        self.stage = stage
        """Stages of ``lagoon.dropping`` that its batches went through."""
        self._ends: list[int] = []
        self._memory = bytearray()

    @property
    def last_number(self) -> int:
        """The number of its newest batch."""
        return self.first_number + len(self._ends) - 1

    @property
    def num_bytes(self) -> int:
        """The room that it takes."""
        return self._ends[-1] if self._ends else 0

    def append(self, body: bytes) -> None:
        """Add a batch."""
        line = body + b"\n"
        if self.path is None:
            self._memory += line
        else:
            self._write_at_end(self.path, line)
        self._ends.append(self.num_bytes + len(line))

    def read(self, number: int) -> bytes:
        """The batch of that number."""
        index = number - self.first_number
        start = self._ends[index - 1] if index else 0
        length = self._ends[index] - start
        if self.path is None:
            return bytes(self._memory[start : start + length - 1])
        with self.path.open("rb") as file:
            file.seek(start)
            line = file.read(length)
        if len(line) != length or not line.endswith(b"}\n"):
            raise OSError(f"{self.path} does not hold what was written")
        return line[:-1]

    def rewrite(self, bodies: Sequence[bytes]) -> None:
        """Put other batches of the same numbers in the places of its own."""
        lines = [body + b"\n" for body in bodies]
        if self.path is None:
            self._memory = bytearray().join(lines)
        else:
            self._replace(self.path, lines)
        ends, end = [], 0
        for line in lines:
            end += len(line)
            ends.append(end)
        self._ends = ends

    def remove(self) -> None:
        """Give its room back, as far as that is possible."""
        self._memory = bytearray()
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _write_at_end(self, path: Path, line: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            _write_at(descriptor, line, self.num_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self.num_bytes)
            raise
        finally:
            os.close(descriptor)

    @staticmethod
    def _replace(path: Path, lines: Sequence[bytes]) -> None:
        new = path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.writelines(lines)
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise


def _write_at(descriptor: int, data: bytes, place: int) -> None:
    """All of ``data``: a disk that is nearly full takes a part first."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], place + done)
