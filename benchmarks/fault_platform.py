"""A platform whose API takes the time from a clock that the suite sets, and a second API beside it.

``python -m benchmarks.fault_platform`` is the command ``lagoon`` with that API in the place of the
usual one; nothing else about it differs, and the clock of the machine is never touched.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from fastapi import FastAPI

import cli.up
from backend import logs
from backend.app import create_app
from backend.clock import utc_now
from backend.settings import Settings
from cli.client import Api
from cli.home import Home
from cli.main import main
from cli.ports import Ports
from cli.processes import load_stack, wait_until
from cli.services.api import api, api_url
from cli.services.base import ROOT, Service
from cli.supervisor import child_environment

USUAL, OURS = "backend.app:app_from_environment", "benchmarks.fault_platform:app"
READY_SECONDS = 60.0


def clock_file(home: Path) -> Path:
    """The file with the seconds by which the API's clock is ahead; none while it is right."""
    return home / "clock-ahead-seconds"


def app() -> FastAPI:
    """The API as the platform starts it, with a clock of ours."""
    settings = Settings()
    file = clock_file(settings.home)

    def clock() -> datetime:
        ahead = float(file.read_text() or 0) if file.exists() else 0.0
        return utc_now() + timedelta(seconds=ahead)

    logs.configure()
    return create_app(settings, clock=clock)


def set_clock(home: Home, ahead_seconds: float) -> None:
    """Have the API's clock step to so many seconds ahead of the machine's."""
    new = clock_file(home.root).with_suffix(".new")
    new.write_text(str(ahead_seconds))
    new.replace(clock_file(home.root))


def _api(home: Home, ports: Ports) -> Service:
    service = api(home, ports)
    command = [OURS if part == USUAL else part for part in service.command]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return replace(
        service, command=command, environment={**service.environment, "PYTHONPATH": paths}
    )


def ports_of(home: Home) -> Ports:
    """The ports of the home's running platform."""
    found = json.loads((home.root / "ports.json").read_text())
    del found["block"]
    return Ports(**found)


@dataclass(slots=True)
class SecondApi:
    """Another API process on the platform's database."""

    process: subprocess.Popen[bytes]
    api: Api


@contextmanager
def second_api(home: Home, token: str) -> Iterator[SecondApi]:
    """An API process beside the platform's, on a port of its own, for as long as the context."""
    stack = load_stack(home.stack_file)
    assert stack is not None  # the platform is up
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ports = replace(ports_of(home), api=port)
    service = _api(home, ports)
    with (home.logs / "second-api.log").open("ab") as output:
        process = subprocess.Popen(
            list(service.command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**child_environment(os.environ, home, stack.mark), **service.environment},
            start_new_session=True,
        )
    try:
        if not wait_until(service.is_ready, READY_SECONDS):
            raise RuntimeError("the second API did not get ready")
        with Api(api_url(ports), token) as client:
            yield SecondApi(process, client)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    setattr(cli.up, "api", _api)  # noqa: B010  # it is what `up` looks up; nobody exports it
    main()
