"""How much memory a stack takes: proportional set sizes, so that shared pages count once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.home import Home
from cli.processes import load_stack
from lagoon.proc import PROC, environment, pids, proportional_bytes, stat_fields

STARTER = "lagoon up"


@dataclass(frozen=True, slots=True)
class Process:
    """A running process, as far as its memory is concerned."""

    pid: int
    parent: int
    is_marked: bool
    """It carries the home folder in its environment."""


def memory_of(home: Home, proc: Path = PROC) -> dict[str, int]:
    """Bytes of each service of the home's stack, largest first: its process and what it started.

    Raises ``RuntimeError`` when no stack is up.
    """
    stack = load_stack(home.stack_file)
    if stack is None:
        raise RuntimeError(f"nothing is up for the home folder {home.root}")
    names = {stack.owner.pid: STARTER} | {entry.pid: entry.name for entry in stack.processes}
    sizes: dict[str, int] = {}
    for pid, service in services(processes(home, proc), names).items():
        sizes[service] = sizes.get(service, 0) + proportional_bytes(pid, proc)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def services(found: Mapping[int, Process], names: Mapping[int, str]) -> dict[int, str]:
    """The service that each process of the stack belongs to, by process id.

    A process belongs to the nearest named process above it. One that has lost its parents but
    carries the mark is of the service ``other``; all that remain are not of the stack.
    """
    owners = {}
    for pid, process in found.items():
        above, is_marked = pid, process.is_marked
        while above in found and above not in names:
            above = found[above].parent
            is_marked = is_marked or (above in found and found[above].is_marked)
        if above in names or is_marked:
            owners[pid] = names.get(above, "other")
    return owners


def processes(home: Home, proc: Path = PROC) -> dict[int, Process]:
    """All processes of the machine, by id."""
    mark = f"LAGOON_HOME={home.root}".encode()
    found = {}
    for pid in pids(proc):
        fields = stat_fields(pid, proc)
        if fields:  # else it has ended
            found[pid] = Process(pid, int(fields[1]), mark in environment(pid, proc))
    return found
