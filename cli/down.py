"""``lagoon down`` and ``lagoon status``: a running Lagoon seen from another terminal."""

from __future__ import annotations

import signal
from typing import Any

import httpx

from cli.client import load_credentials
from cli.home import Home
from cli.output import say
from cli.processes import end, load_stack, marked, wait_until
from cli.supervisor import stop_processes
from lagoon.proc import proportional_bytes

STOP_SECONDS = 90.0


def down(home: Home) -> bool:
    """Stop a home's Lagoon, with or without its ``lagoon up``; False when nothing was running."""
    stack = load_stack(home.stack_file)
    if stack is None or not (stack.owner.is_alive or marked(stack.mark)):
        return False
    end(stack.owner, signal.SIGTERM)
    if not wait_until(lambda: not stack.owner.is_alive, STOP_SECONDS):
        say("lagoon up does not end; ending its processes from here.")
        end(stack.owner, signal.SIGKILL)
    if marked(stack.mark):
        stop_processes(stack, {"postgres": (signal.SIGINT, 20.0)}, say)
    home.stack_file.unlink(missing_ok=True)
    return True


def status(home: Home, transport: httpx.BaseTransport | None = None) -> dict[str, Any]:
    """What runs for a home folder, and what the API says of its surroundings."""
    stack = load_stack(home.stack_file)
    is_up = stack is not None and stack.owner.is_alive
    credentials = load_credentials(home)
    processes = []
    if stack is not None and is_up:
        processes = [
            {"name": item.name, "pid": item.pid, "alive": item.is_alive} for item in stack.processes
        ]
    found: dict[str, Any] = {
        "up": is_up,
        "home": str(home.root),
        "api_url": credentials.api_url if credentials else None,
        "dashboard_url": credentials.dashboard_url if credentials else None,
        "processes": processes,
        "memory_mib": _memory_mib(stack.mark) if stack is not None and is_up else 0,
        "checks": {},
    }
    if is_up and credentials:
        found["checks"] = _checks(credentials.api_url, transport)
    return found


def _checks(api_url: str, transport: httpx.BaseTransport | None) -> dict[str, Any]:
    """What the API says of its parts; of an API that does not answer, that."""
    try:
        with httpx.Client(transport=transport, timeout=10.0, trust_env=False) as http:
            checks: dict[str, Any] = http.get(f"{api_url}/readyz").json()["checks"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        detail = f"The API at {api_url} does not answer ({type(error).__name__})."
        return {"api": {"ok": False, "detail": detail}}
    return checks


def _memory_mib(mark: str) -> int:
    """Memory of all marked processes; what several share is counted once, by proportion."""
    return sum(proportional_bytes(process.pid) for process in marked(mark)) // 1024**2
