"""What the kernel says of processes, read below ``/proc``; one that has ended raises nothing.

It is read by the starter, which ends a stack's processes, and by the workers, which end a run's.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
BYTES_PER_KIB = 1024


def pids(proc: Path = PROC) -> list[int]:
    """The ids of all processes."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def environment(pid: int, proc: Path = PROC) -> list[bytes]:
    """The NAME=VALUE entries it was started with; none when it has ended or is somebody else's."""
    try:
        return (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def boot_id(proc: Path = PROC) -> str:
    """The kernel's id of the current boot; empty where the kernel tells none."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def machine_id(proc: Path = PROC) -> str:
    """Boot and process namespace together: two that are equal see the same processes.

    Containers of one machine share its boot, and not its processes. Empty when it is not known,
    which equals nothing.
    """
    try:
        namespace = os.readlink(proc / "self/ns/pid")
    except OSError:
        return ""
    boot = boot_id(proc)
    return f"{boot} {namespace}" if boot else ""


def stat_fields(pid: int, proc: Path = PROC) -> list[str]:
    """Its status line from the third field, the state, on; none when it has ended."""
    try:
        # The name in parentheses may hold anything, so fields are counted after the last one.
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def command_line(pid: int, proc: Path = PROC) -> list[bytes]:
    """The words it was started with; none when it has ended."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def proportional_bytes(pid: int, proc: Path = PROC) -> int:
    """Its own memory and its share of what it shares; 0 when it has ended or is somebody else's."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * BYTES_PER_KIB for line in lines if line.startswith("Pss:"))
