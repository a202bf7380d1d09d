"""What the fault suite kills: processes of one stack, found by mark and by what they are."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.home import Home
from cli.processes import load_stack
from lagoon.proc import command_line, environment, pids, stat_fields
from workers.remains import MARK


@dataclass(frozen=True, slots=True)
class Target:
    """Something to kill, and whether the run it belongs to loses a process by it."""

    name: str
    find: Callable[[Home, str], list[int]]
    """Its process ids, given the home and the id of the run's newest attempt."""
    ends_attempt: bool


def of_attempt(attempt_id: str) -> dict[int, str]:
    """The processes that carry the attempt's mark, by their command lines."""
    mark = f"{MARK}={attempt_id}".encode()
    return {
        pid: b" ".join(command_line(pid)).decode(errors="replace")
        for pid in pids()
        if mark in environment(pid) and stat_fields(pid)[:1] not in ([], ["Z"])
    }


def _titled(text: str) -> Callable[[Home, str], list[int]]:
    def find(home: Home, attempt_id: str) -> list[int]:
        return [pid for pid, title in of_attempt(attempt_id).items() if text in title]

    return find


def _drivers(home: Home, attempt_id: str) -> list[int]:
    found = of_attempt(attempt_id)
    return [pid for pid, title in found.items() if title.startswith("python -m workers.driver")]


def _engines(home: Home, attempt_id: str) -> list[int]:
    """Engines' processes: forked from a server, which has the same command line."""
    servers = {p for p, title in of_attempt(attempt_id).items() if "forkserver" in title}
    return [pid for pid in servers if int((stat_fields(pid) or ["", "0"])[1]) in servers]


def _service(name: str) -> Callable[[Home, str], list[int]]:
    def find(home: Home, attempt_id: str) -> list[int]:
        stack = load_stack(home.stack_file)
        return [item.pid for item in stack.processes if item.name == name] if stack else []

    return find


def _beat(home: Home, attempt_id: str) -> list[int]:
    """The process that the Celery worker has started for it."""
    workers = _service("worker")(home, attempt_id)
    return [pid for pid in pids() if int((stat_fields(pid) or ["", "0"])[1]) in workers]


def _of_ray(program: str) -> Callable[[Home, str], list[int]]:
    def find(home: Home, attempt_id: str) -> list[int]:
        mark = f"LAGOON_HOME={home.root}".encode()
        return [
            pid
            for pid in pids()
            if mark in environment(pid)
            and Path(b"".join(command_line(pid)[:1]).decode(errors="replace")).name == program
        ]

    return find


TARGETS = (
    Target("driver", _drivers, ends_attempt=True),
    Target("trainer", _titled("ray::TrainerActor"), ends_attempt=True),
    # Another generator takes their place while the attempt goes on.
    Target("generator", _titled("ray::GeneratorActor"), ends_attempt=False),
    Target("vLLM engine", _engines, ends_attempt=False),
    Target("raylet", _of_ray("raylet"), ends_attempt=True),
    Target("GCS", _of_ray("gcs_server"), ends_attempt=True),
    Target("Celery worker", _service("worker"), ends_attempt=False),
    Target("beat", _beat, ends_attempt=False),
    Target("API", _service("api"), ends_attempt=False),
    Target("Valkey", _service("valkey"), ends_attempt=False),
    Target("PostgreSQL", _service("postgres"), ends_attempt=False),
)


def kill(target: Target, home: Home, attempt_id: str, order: random.Random) -> int | None:
    """Kill one of the target's processes; its id, or None when there is none at the moment.

    PostgreSQL is told to restart at once instead (SIGQUIT), and Valkey loses what it had saved.
    """
    found = target.find(home, attempt_id)
    if not found:
        return None
    pid = order.choice(sorted(found))
    try:
        os.kill(pid, signal.SIGQUIT if target.name == "PostgreSQL" else signal.SIGKILL)
    except ProcessLookupError:
        return None
    if target.name == "Valkey":
        shutil.rmtree(home.root / "valkey" / "appendonlydir", ignore_errors=True)
        for file in (home.root / "valkey").glob("*.rdb"):
            file.unlink(missing_ok=True)
    return pid
