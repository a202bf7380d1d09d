"""``lagoon up``: every process of a single machine, from nothing to a page in the browser.

::

    ports ─▶ model ─▶ PostgreSQL ─▶ tables ─▶ API ──────────────▶ worker ─▶ sign-in ─▶ demo ─▶ URL
                      Valkey ──────────────────┘   dashboard      │
                      Ray ────────────────────────────────────────┘
"""

from __future__ import annotations

import importlib.metadata
import os
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from cli.client import Api
from cli.demo import make_demo
from cli.home import Home, HomeLock
from cli.models import ensure_built
from cli.output import Refusal, say, tell, warn
from cli.ports import BlockClaims, Ports, candidates, choose_ports, is_port_free, remember
from cli.processes import STACK, load_stack, marked
from cli.services.api import api, api_url, dashboard_url
from cli.services.postgres import postgres
from cli.services.ray_head import ray_head
from cli.services.streamlit_page import dashboard
from cli.services.valkey import valkey
from cli.services.worker import worker
from cli.signin import fresh_link, sign_in, sign_in_link
from cli.supervisor import Supervisor, stop_processes
from cli.tables import bring_up_to_date

WATCH_SECONDS = 0.5
STARTING_MODEL = "tiny"
HONOURED = frozenset({"LAGOON_HOME", STACK})
"""The variables of our own that a start goes by, and the mark that it gives its processes."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for."""

    api_port: int | None = None
    dashboard_port: int | None = None
    demo: bool = True


def up(home: Home, wishes: Wishes) -> None:
    """Start everything, watch over it, and stop it all at Ctrl-C or SIGTERM.

    Raises ``Refusal`` when something cannot be started; whatever was started is stopped then.
    """
    home.create()
    with HomeLock(home) as lock, BlockClaims(home.short.parent) as claims:
        if not lock.take():
            _say_already_up(home)
            return
        end_leftovers(home)
        block, ports = choose_ports(
            candidates(home),
            api=wishes.api_port,
            dashboard=wishes.dashboard_port,
            is_free=is_port_free,
            claim=claims.claim,
            is_claimed=claims.is_claimed,
        )
        remember(home, block, ports)
        home.create_short()
        say(f"Lagoon {importlib.metadata.version('lagoon')}, home folder {home.root}")
        say_ignored(os.environ)
        with _interruptible():
            _run(home, ports, wishes.demo)
        tell("Stopped. Nothing is left running; the data is kept.")


def _run(home: Home, ports: Ports, demo: bool) -> None:
    supervisor = Supervisor(home, secrets.token_hex(8), tell, os.environ)
    try:
        ensure_built(home, STARTING_MODEL, say, supervisor.environment)
        _start(supervisor, home, ports)
        welcome(home, ports, demo=demo)
        stop = threading.Event()
        while not stop.wait(WATCH_SECONDS):
            supervisor.watch()
    except KeyboardInterrupt:
        tell("Stopping. Runs that are active will be shown as ended.")
    finally:
        supervisor.stop()


def end_leftovers(home: Home) -> None:
    """End the processes of an earlier start whose ``lagoon up`` was killed."""
    stack = load_stack(home.stack_file)
    if stack is None:
        return
    if any(process.is_alive for process in stack.processes) or marked(stack.mark):
        say("Ending the processes that an earlier start left behind.")
        stop_processes(stack, {"postgres": (signal.SIGINT, 20.0)}, lambda _: None)
    home.stack_file.unlink(missing_ok=True)


def _start(supervisor: Supervisor, home: Home, ports: Ports) -> None:
    supervisor.start(postgres(home))
    supervisor.start(valkey(home, ports))
    supervisor.start(ray_head(home, ports))
    supervisor.wait_ready("postgres")
    supervisor.wait_ready("valkey")
    bring_up_to_date(home, say)
    supervisor.start(api(home, ports))
    supervisor.start(dashboard(home, ports))
    supervisor.wait_ready("api")
    supervisor.start(worker(home, ports))  # its credential is made by the API's first start
    for name in ("dashboard", "ray", "worker"):
        supervisor.wait_ready(name)


def welcome(
    home: Home, ports: Ports, *, demo: bool, transport: httpx.BaseTransport | None = None
) -> None:
    """Make the demo if asked for, and say how to get in: that in any case."""
    page = dashboard_url(ports)
    try:
        credentials = sign_in(home, api_url(ports), page, transport)
        with Api(credentials.api_url, credentials.token, transport) as client:
            if demo:
                _make_demo(home, client)
            link = sign_in_link(client, credentials.api_url, page)
    except Refusal as refusal:  # Lagoon runs all the same; people can sign in with a password
        warn(str(refusal))
        link = None
    say(f"\nReady. The dashboard: {page}")
    if link:
        say(f"Sign in with one click (once, within ten minutes): {link}")
    password = _shown(home.credentials / "admin-password")
    say(f"Or as admin with the password in {password}. Ctrl-C stops everything.")


def _make_demo(home: Home, client: Api) -> None:
    try:
        if make_demo(home, client):
            say("The demo is queued: two runs, one after the other.")
    except Refusal as refusal:  # people get in all the same
        warn(f"The demo could not be made; the next start tries again. {refusal}")


def say_ignored(environment: Mapping[str, str]) -> None:
    """Name the variables that are set and have no effect here; never their values, bar Ray's."""
    address = environment.get("RAY_ADDRESS")
    if address:
        say(f"RAY_ADDRESS={address} is ignored: lagoon up starts a Ray of its own on this machine.")
    names = sorted(name for name in environment if name.startswith("LAGOON_") and environment[name])
    ignored = [name for name in names if name not in HONOURED]
    if ignored:
        say(f"Set but ignored: {', '.join(ignored)}. lagoon up makes its own settings for these.")


def _say_already_up(home: Home) -> None:
    say(f"Lagoon is already up for the home folder {home.root}.")
    try:
        page, link = fresh_link(home)
    except Refusal:  # it has only just been started, in another terminal
        say("It is still starting; its terminal says when it is ready.")
        return
    say(f"The dashboard: {page}\nSign in with one click (once, within ten minutes): {link}")


def _shown(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal end Lagoon as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
