"""Processes that Lagoon started, and how they are ended: only those, by id, all of them.

A process id alone may by now be another program's, so each is kept with the moment it started
and the boot it started in. What our processes have started in turn (Ray's workers, job drivers,
vLLM's engines) is found by a random mark, ``LAGOON_STACK``, that the environment hands down.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from lagoon import proc

STACK = "LAGOON_STACK"
DRIVER = "workers.driver"
"""The module that a run's driver is started as."""
POLL_SECONDS = 0.05
KILL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process that was started, told apart from a later one with the same id."""

    name: str
    pid: int
    started: int
    """Clock ticks between boot and its start."""
    boot: str
    """The kernel's id of that boot."""

    @property
    def is_alive(self) -> bool:
        """True while this very process runs; one that ended and was not yet reaped does not."""
        return self.boot == proc.boot_id() and start_ticks(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Stack:
    """One start of Lagoon: its mark and its processes, in the order of their start."""

    mark: str
    owner: ProcessRecord
    """The ``lagoon up`` that watches over the others."""
    processes: tuple[ProcessRecord, ...] = ()

    def save(self, path: Path) -> None:
        """Write to ``path``, whole or not at all."""
        text = json.dumps(asdict(self), indent=2)
        new = path.with_suffix(".new")
        new.write_text(text + "\n")
        new.replace(path)


def load_stack(path: Path) -> Stack | None:
    """The stack saved at ``path``; None when there is none that can be read."""
    try:
        data = json.loads(path.read_text())
        processes = tuple(ProcessRecord(**item) for item in data["processes"])
        return Stack(data["mark"], ProcessRecord(**data["owner"]), processes)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def start_ticks(pid: int) -> int | None:
    """When process ``pid`` started, in clock ticks since boot; None if it runs no more."""
    fields = proc.stat_fields(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def record(name: str, pid: int) -> ProcessRecord | None:
    """The record of the running process ``pid``; None if it has ended already."""
    started = start_ticks(pid)
    return None if started is None else ProcessRecord(name, pid, started, proc.boot_id())


def marked(mark: str) -> list[ProcessRecord]:
    """All running processes whose environment carries the stack's mark, except this one."""
    wanted = f"{STACK}={mark}".encode()
    found = []
    for pid in proc.pids():
        if pid == os.getpid() or wanted not in proc.environment(pid):
            continue
        entry = record("", pid)
        if entry is not None:
            found.append(entry)
    return found


def drivers(mark: str) -> list[ProcessRecord]:
    """The stack's running drivers: Ray started them, but their mark and command tell them."""
    return [entry for entry in marked(mark) if _runs_module(entry.pid, DRIVER)]


def end(process: ProcessRecord, signum: int) -> None:
    """Send a signal to exactly this process; nothing when it is gone."""
    if process.is_alive:
        try:
            os.kill(process.pid, signum)
        except ProcessLookupError:  # ended in between
            return


def wait_until(
    condition: Callable[[], bool],
    seconds: float,
    *,
    poll_seconds: float = POLL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Poll until ``condition`` holds or ``seconds`` have passed; whether it held."""
    deadline = clock() + seconds
    while not condition():
        if clock() >= deadline:
            return False
        sleep(poll_seconds)
    return True


def stop_in_order(
    processes: Sequence[ProcessRecord],
    *,
    signals: Mapping[str, tuple[int, float]],
    on_stop: Callable[[ProcessRecord], None],
) -> None:
    """End processes one after the other, each with its own signal and grace period by name.

    Those without an entry get SIGTERM and five seconds. What outlives its grace is killed.
    """
    for process in processes:
        if not process.is_alive:
            continue
        on_stop(process)
        signum, grace_seconds = signals.get(process.name, (signal.SIGTERM, 5.0))
        end(process, signum)
        if not wait_until(partial(_has_ended, process), grace_seconds):
            end(process, signal.SIGKILL)


def stop_drivers(found: Sequence[ProcessRecord], seconds: float) -> bool:
    """Ask drivers, all at once, to save their weights and report their end; whether all did."""
    for process in found:
        end(process, signal.SIGTERM)
    return wait_until(lambda: not any(process.is_alive for process in found), seconds)


def sweep(mark: str, extra: Iterable[ProcessRecord] = (), seconds: float = KILL_SECONDS) -> bool:
    """Kill what still carries the mark, and ``extra``, until nothing is left.

    Returns False if something is alive after ``seconds`` (a process stuck in the kernel).
    """
    rest = list(extra)

    def nothing_left() -> bool:
        alive = [*marked(mark), *(process for process in rest if process.is_alive)]
        for process in alive:
            end(process, signal.SIGKILL)
        return not alive

    return wait_until(nothing_left, seconds)


def _has_ended(process: ProcessRecord) -> bool:
    return not process.is_alive


def _runs_module(pid: int, module: str) -> bool:
    """True for a Python that was started with ``-m module``, not for a shell that names it."""
    return (b"-m", module.encode()) in pairwise(proc.command_line(pid))
