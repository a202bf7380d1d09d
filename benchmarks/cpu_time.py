"""The processor seconds of a training run's processes, by what they do, over time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from lagoon.proc import PROC, command_line, pids, stat_fields

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ROLES = ("driver", "generator", "engine", "trainer", "Ray")
PARENT, USER, SYSTEM = 1, 11, 12
"""Places of a status line's fields, the state being the first."""

Seconds = Mapping[str, float]
"""Processor seconds so far, by role."""


class CpuTime:
    """Looks at a process and all that it has started, again and again, in a thread of its own."""

    def __init__(self, root: int, every_seconds: float = 0.2, proc: Path = PROC) -> None:
        self._root, self._every, self._proc = root, every_seconds, proc
        self._ended = threading.Event()
        self._seen: dict[int, tuple[str, float]] = {}
        self._looks: list[tuple[float, Seconds]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def between(self, start: float, end: float) -> dict[str, float]:
        """What each role took between two moments of ``time.time()``.

        Raises ``ValueError`` when nobody looked before the first or after the second.
        """
        before = [seconds for at, seconds in self._looks if at <= start]
        after = [seconds for at, seconds in self._looks if at >= end]
        if not before or not after:
            raise ValueError("the moments are not within what was looked at")
        return {role: after[0][role] - before[-1][role] for role in ROLES}

    def look(self, at: float) -> None:
        """Count once. What an ended process has taken stays counted."""
        parents, taken = {}, {}
        for pid in pids(self._proc):
            fields = stat_fields(pid, self._proc)
            if fields:
                parents[pid] = int(fields[PARENT])
                taken[pid] = (int(fields[USER]) + int(fields[SYSTEM])) / TICKS_PER_SECOND
        titles = {pid: self._title(pid) for pid in parents}
        for pid, role in roles(self._root, parents, titles).items():
            self._seen[pid] = (role, taken[pid])
        seconds = dict.fromkeys(ROLES, 0.0)
        for role, spent in self._seen.values():
            seconds[role] += spent
        self._looks.append((at, seconds))

    def _title(self, pid: int) -> str:
        return b" ".join(command_line(pid, self._proc)).decode(errors="replace")

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            self.look(time.time())


def roles(root: int, parents: Mapping[int, int], titles: Mapping[int, str]) -> dict[int, str]:
    """The role of each process below ``root``, by process id.

    The driver is the process that trains; what is below a generator's actor is its engine; and
    what belongs to nothing else is Ray's.
    """
    found = {}
    for pid in parents:
        above, line = pid, [pid]
        while above in parents and above != root:
            above = parents[above]
            line.append(above)
        if above == root and pid != root:
            found[pid] = _role([titles.get(each, "") for each in line])
    return found


def _role(line: list[str]) -> str:
    """Of a process, from its title and those of the processes above it."""
    itself, *above = line
    if "TrainerActor" in "".join(line):
        return "trainer"
    if "GeneratorActor" in itself:
        return "generator"
    if any("GeneratorActor" in title for title in above):
        return "engine"
    return "driver" if "cli.main train" in itself else "Ray"
