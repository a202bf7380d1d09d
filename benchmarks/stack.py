"""A whole Lagoon in a temporary home: started, asked, stopped, and gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.frame import progress
from cli.client import Api, Credentials
from cli.home import Home, find_home
from cli.models import ensure_built
from cli.processes import wait_until
from cli.up import STARTING_MODEL, end_leftovers

START_SECONDS = 180.0
READY = "\nReady."
STOP_SECONDS = 90.0


@contextmanager
def temporary_home() -> Iterator[Home]:
    """A home folder that has the starting model already, and is removed in the end.

    The model is the one of the user's own home, where it is built if it is missing.
    """
    usual = find_home(None)
    ensure_built(usual, STARTING_MODEL, progress, os.environ)
    with tempfile.TemporaryDirectory(prefix="lagoon-quickstart-") as folder:
        home = Home(Path(folder) / "home")
        models = Path("models") / STARTING_MODEL
        shutil.copytree(usual.root / models, home.root / models)
        try:
            yield home
        finally:
            shutil.rmtree(home.short, ignore_errors=True)


@contextmanager
def running(home: Home, module: str = "cli.main") -> Iterator[Api]:
    """The API of a Lagoon that runs for as long as the context.

    ``module`` is run in the place of the command ``lagoon``.

    Raises ``RuntimeError`` with what ``lagoon up`` said when it does not get ready.
    """
    said = home.root / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "up", "--no-demo", "--home", str(home.root)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "LAGOON_HOME": str(home.root)},  # `up` itself is counted as well
            start_new_session=True,
        )
    try:
        # The key in the home folder may be of an earlier start: only `up` itself knows.
        wait_until(lambda: READY in said.read_text() or process.poll() is not None, START_SECONDS)
        if process.poll() is not None or READY not in said.read_text():
            raise RuntimeError(f"lagoon up did not get ready; it said:\n{said.read_text()}")
        credentials = Credentials(**json.loads((home.credentials / "cli.json").read_text()))
        with Api(credentials.api_url, credentials.token) as api:
            yield api
    finally:
        _stop(home, process)


def _stop(home: Home, process: subprocess.Popen[bytes]) -> None:
    """End it as Ctrl-C does; what that leaves is ended by its mark."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    end_leftovers(home)
