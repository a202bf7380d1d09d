"""Starts processes, waits until they are ready, starts again what dies, and ends them all.

::

    start ─▶ ready ─▶ watched ──(dies)──▶ started again, each at most three times in a minute
                         │                       └─▶ everything is stopped
                         └──(Ctrl-C)──▶ Celery worker ─▶ drivers ─▶ Ray ─▶ dashboard ─▶ API
                                        ─▶ Valkey ─▶ PostgreSQL, each by its own signal;
                                        then whatever carries our mark is killed
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cli.home import Home
from cli.output import Refusal
from cli.processes import (
    STACK,
    ProcessRecord,
    Stack,
    drivers,
    record,
    stop_drivers,
    stop_in_order,
    sweep,
    wait_until,
)
from cli.services.base import BIN, Service

MAX_RESTARTS = 3
RESTART_WINDOW_SECONDS = 60.0
MAX_LOG_BYTES = 16 * 1024**2
LOG_TAIL_LINES = 15
DRIVER_SECONDS = 60.0
"""For drivers to end their step, save their weights and report their end."""
STOP_ORDER = ("worker", "ray", "dashboard", "api", "valkey", "postgres")
"""Whoever reports to somebody ends before that somebody; drivers end between worker and Ray."""


class Supervisor:
    """The processes of one start, from the first to the last.

    ``environment`` is what each of them gets, with the mark that ``stop`` finds them by.
    """

    def __init__(
        self,
        home: Home,
        mark: str,
        say: Callable[[str], None],
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        owner = record("up", os.getpid())
        assert owner is not None  # this process is running
        self._home = home
        self._say = say
        self._clock = clock
        self.environment = child_environment(environment, home, mark)
        self._stack = Stack(mark, owner)
        self._services: dict[str, Service] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}
        self._restarts: dict[str, list[float]] = {}

    def start(self, service: Service) -> None:
        """Start a process. It is in the file of processes before this returns."""
        log = self._home.logs / f"{service.name}.log"
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            child = subprocess.Popen(
                list(service.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home.root,
                env={**self.environment, **service.environment},
                start_new_session=True,  # a Ctrl-C in the terminal is for us alone
                **_as_user(service.user),
            )
        self._services[service.name] = service
        self._children[service.name] = child
        self._started[service.name] = self._clock()
        self._save(service.name, child.pid)

    def wait_ready(self, name: str) -> None:
        """Wait until a process is ready and say so.

        Raises ``Refusal`` with the end of its log when it ends, or takes too long.
        """
        service, child = self._services[name], self._children[name]
        wait_until(lambda: child.poll() is not None or service.is_ready(), service.ready_seconds)
        if child.poll() is not None:
            raise Refusal(self._excuse(service, f"ended at once (exit code {child.returncode})"))
        if not service.is_ready():
            raise Refusal(
                self._excuse(service, f"was not ready after {service.ready_seconds:.0f} s")
            )
        seconds = self._clock() - self._started[name]
        self._say(f"  {service.title:<16} ready ({seconds:.1f} s)")

    def watch(self) -> None:
        """Start again whatever has ended since the last call.

        Raises ``Refusal`` when that happens too often.
        """
        for name, child in list(self._children.items()):
            if child.poll() is None:
                continue
            service = self._services[name]
            now = self._clock()
            before = self._restarts.get(name, [])
            recent = [at for at in before if now - at < RESTART_WINDOW_SECONDS]
            if len(recent) >= MAX_RESTARTS:
                raise Refusal(self._excuse(service, "keeps ending; everything is being stopped"))
            self._restarts[name] = [*recent, now]
            self._say(
                f"The {service.title} process ended by itself (exit code {child.returncode}); "
                f"starting it again. Its log: {self._home.logs / name}.log"
            )
            self.start(service)

    def stop(self) -> None:
        """End everything that was started, and everything that those have started.

        A Ctrl-C during it kills the rest at once.
        """
        signals = {
            name: (service.stop_signal, service.stop_seconds)
            for name, service in self._services.items()
        }
        stop_processes(self._stack, signals, self._say)
        for child in self._children.values():
            child.wait()
        self._home.stack_file.unlink(missing_ok=True)

    def _save(self, name: str, pid: int) -> None:
        others = tuple(item for item in self._stack.processes if item.name != name)
        entry = record(name, pid)  # None: it has ended already, and will be noticed
        added = (entry,) if entry is not None else ()
        self._stack = Stack(self._stack.mark, self._stack.owner, others + added)
        self._stack.save(self._home.stack_file)

    def _excuse(self, service: Service, what: str) -> str:
        log = self._home.logs / f"{service.name}.log"
        lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        tail = "".join(f"\n    {line}" for line in lines)
        return f"The {service.title} process {what}. Its log, {log}, ends with:{tail}"


def stop_processes(
    stack: Stack, signals: Mapping[str, tuple[int, float]], say: Callable[[str], None]
) -> None:
    """End a stack's processes in ``STOP_ORDER``, then kill all that carry its mark.

    Any other processes end first, last started first.
    """

    def announce(process: ProcessRecord) -> None:
        say(f"  stopping {process.name}")

    def stop(processes: Sequence[ProcessRecord]) -> None:
        stop_in_order(processes, signals=signals, on_stop=announce)

    submitters, others = _stop_stages(stack.processes)
    try:
        stop(submitters)  # nothing submits a driver any more
        _stop_drivers(stack.mark, say)
        stop(others)
    except KeyboardInterrupt:
        say("  killing the rest")
    finally:
        with undisturbed():
            clean = sweep(stack.mark, stack.processes)
    if not clean:
        raise Refusal(
            "Some processes could not be ended; they are stuck in the kernel. They carry "
            f"{STACK}={stack.mark} in their environment."
        )


def _stop_stages(
    processes: Sequence[ProcessRecord],
) -> tuple[list[ProcessRecord], list[ProcessRecord]]:
    """What ends before the drivers and what ends after them, each in the order of its end."""
    named = {item.name: item for item in processes}
    first = [item for item in reversed(processes) if item.name not in STOP_ORDER]
    ordered = [*first, *(named[name] for name in STOP_ORDER if name in named)]
    cut = next((at for at, item in enumerate(ordered) if item.name in STOP_ORDER[1:]), len(ordered))
    return ordered[:cut], ordered[cut:]


def _stop_drivers(mark: str, say: Callable[[str], None]) -> None:
    found = drivers(mark)
    if not found:
        return
    say(
        "  stopping runs: they end their step, save their weights and report their end "
        f"(at most {DRIVER_SECONDS:.0f} s)"
    )
    if not stop_drivers(found, DRIVER_SECONDS):
        say(f"  some did not end within {DRIVER_SECONDS:.0f} s and are ended with Ray")


@contextmanager
def undisturbed() -> Iterator[None]:
    """No signal that asks for an end interrupts what is being ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def child_environment(base: Mapping[str, str], home: Home, mark: str) -> dict[str, str]:
    """The environment of every process: the user's own, less what would lead it elsewhere."""
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith(("LAGOON_", "RAY_", "STREAMLIT_"))
    }
    return {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{base.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        "LAGOON_HOME": str(home.root),
        STACK: mark,
        # Processes that rename themselves would otherwise write over their environment, and with
        # it the mark.
        "SPT_NOENV": "1",
    }


def _as_user(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
