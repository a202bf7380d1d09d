"""The API: FastAPI under uvicorn."""

import sys

import httpx

from cli.home import Home
from cli.ports import Ports
from cli.services.base import ROOT, Service, answers
from cli.services.postgres import database_url
from cli.services.valkey import broker_url


def api(home: Home, ports: Ports) -> Service:
    """The API on the loopback address."""
    command = [sys.executable, "-m", "uvicorn", "backend.app:app_from_environment", "--factory"]
    command += ["--host", "127.0.0.1", "--port", str(ports.api), "--no-access-log"]
    return Service(
        name="api",
        title="API",
        command=command,
        environment=api_environment(home, ports),
        is_ready=lambda: answers(f"{api_url(ports)}/livez"),
        stop_seconds=8.0,
    )


def api_environment(home: Home, ports: Ports) -> dict[str, str]:
    """What ``backend.settings`` reads."""
    return {
        "LAGOON_DATABASE_URL": database_url(home),
        "LAGOON_BROKER_URL": broker_url(home, ports),
        "LAGOON_API_URL": api_url(ports),
        "LAGOON_DASHBOARD_URL": dashboard_url(ports),
        "LAGOON_SERVICE_TOKEN_FILE": str(home.credentials / "service-token"),
        "LAGOON_PRESETS_DIR": str(ROOT / "presets"),
    }


def api_url(ports: Ports) -> str:
    """Where the API answers; its resources are under ``/api/v1``."""
    return f"http://127.0.0.1:{ports.api}"


def dashboard_url(ports: Ports) -> str:
    """Where the dashboard answers."""
    return f"http://127.0.0.1:{ports.dashboard}"


def check_passes(url: str, name: str) -> bool:
    """True when the API's ``/readyz`` says that ``name`` works."""
    try:
        answer = httpx.get(f"{url}/readyz", timeout=5.0, trust_env=False)
        return bool(answer.json()["checks"][name]["ok"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False
