"""Calls to the platform's own parts go straight there, whatever proxy the user's shell names."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from cli.client import Api as CommandApi
from cli.services.base import answers
from dashboard.client import Api as DashboardApi
from dashboard.client import open_connection
from workers import assignment
from workers.launch import RayJobs
from workers.platform import Platform

DISCARD_PORT = 9
"""Nothing listens there: whatever goes to the proxy fails."""


class EmptyList(BaseHTTPRequestHandler):
    """Answers every GET with a list of nothing."""

    def do_GET(self) -> None:
        body = json.dumps({"items": [], "status": "RUNNING"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on this machine, in a shell whose proxy is no way to it."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{DISCARD_PORT}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyList) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def ask_as_worker(url: str) -> None:
    with Platform(url, "token") as platform:
        assert platform.active_attempts() == []


def ask_ray(url: str) -> None:
    with RayJobs(url) as jobs:
        assert jobs.state("a job").status == "running"


def ask_as_driver(url: str) -> None:
    with assignment.open_connection(url, "token") as client:
        assert client.get("/api/v1/attempts/a/config").is_success


def ask_as_dashboard(url: str) -> None:
    with open_connection(url) as pool:
        assert DashboardApi(pool).presets() == []


def ask_as_command(url: str) -> None:
    with CommandApi(url) as api:
        assert api.get("/presets")["items"] == []


def ask_as_starter(url: str) -> None:
    assert answers(url)


@pytest.mark.parametrize(
    "ask",
    [ask_as_worker, ask_ray, ask_as_driver, ask_as_dashboard, ask_as_command, ask_as_starter],
)
def test_no_proxy_is_asked_for_what_is_lagoons_own(url: str, ask: Callable[[str], None]) -> None:
    with pytest.raises(httpx.ConnectError), httpx.Client() as by_proxy:
        by_proxy.get(url)  # the shell's proxy is in force
    ask(url)
