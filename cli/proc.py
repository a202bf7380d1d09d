"""What the kernel says of processes, read below ``/proc``; one that has ended raises nothing."""

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
