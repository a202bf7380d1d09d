"""What is left of an attempt on this machine: processes that carry its mark, and their end.

Ray hands ``LAGOON_ATTEMPT`` down to a driver and its actors, and they to whatever they start, among
it vLLM's engines, which may outlive a parent that was killed. Only a process whose own environment
names an attempt that is to end, and this home folder, is ever signalled, through a handle that no
later process can take over. A home that was restored from a backup has attempts of the same names,
and the home that the backup was made of may still run them on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from lagoon.proc import PROC, environment, pids

MARK = "LAGOON_ATTEMPT"
"""The variable that names the attempt which a process belongs to."""
HOME = "LAGOON_HOME"
"""The variable that names the home folder whose attempt that is."""
KILL_SECONDS = 3.0
"""How long killed processes may take to be gone before they are counted again."""


def processes_of(
    attempt_ids: Collection[str], home: Path, proc: Path = PROC
) -> dict[str, list[int]]:
    """The running processes of each of a home's attempts, by one look at all processes."""
    wanted = {_entry(id): id for id in attempt_ids}
    found: dict[str, list[int]] = {id: [] for id in attempt_ids}
    if not wanted:
        return found
    for pid in pids(proc):
        entries = set(environment(pid, proc))
        if _home_entry(home) not in entries or pid == os.getpid():
            continue
        for entry in entries & wanted.keys():
            found[wanted[entry]].append(pid)
    return found


def kill(attempt_id: str, home: Path, found: Collection[int], seconds: float = KILL_SECONDS) -> int:
    """Kill those of ``found`` that carry the attempt's mark, and wait; how many were killed."""
    marks = {_entry(attempt_id), _home_entry(home)}
    with contextlib.ExitStack() as stack:
        handles = [handle for pid in found for handle in _handle(pid, marks, stack)]
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):  # it has ended in between
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        for handle in handles:  # a handle becomes readable when its process ends
            select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        return len(handles)


def _handle(pid: int, marks: set[bytes], stack: contextlib.ExitStack) -> Iterator[int]:
    """A handle of the process, if it is still one that carries the marks: looked at once more after
    the handle was taken, for the id alone may be another process's by now."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    stack.callback(os.close, handle)
    if marks <= set(environment(pid)):
        yield handle


def _entry(attempt_id: str) -> bytes:
    return f"{MARK}={attempt_id}".encode()


def _home_entry(home: Path) -> bytes:
    return os.fsencode(f"{HOME}={home}")
