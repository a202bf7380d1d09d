"""An API that lives in the test: answers by method and path, and a record of what was asked."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from cli.client import Credentials
from cli.home import Home

URL = "http://api.test"
Answer = Any | httpx.Response | Callable[[httpx.Request], httpx.Response]


class FakeApi(httpx.BaseTransport):
    """Answers ``"GET /runs"`` and the like; a list is given an item a call, its last for ever."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = dict(answers)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        key = f"{request.method} {request.url.path.removeprefix('/api/v1')}"
        if key not in self._answers:
            return problem(404, f"There is no {key}.")
        answer = self._answers[key]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            return answer(request)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def bodies(self, key: str) -> list[Any]:
        """What was sent with each request like ``"POST /runs"``."""
        method, path = key.split()
        return [
            json.loads(request.content)
            for request in self.requests
            if request.method == method and request.url.path == f"/api/v1{path}"
        ]


def problem(status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> httpx.Response:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail}
    return httpx.Response(status, json=body | ({"errors": errors} if errors else {}))


def signed_in_home(folder: Path) -> Home:
    home = Home(folder / "home")
    home.create()
    Credentials(URL, "http://page.test", "lgk_x.y").save(home)
    return home


def run(**changes: Any) -> dict[str, Any]:
    return {
        "id": "r1",
        "name": "first",
        "status": "running",
        "is_paused": False,
        "reason": "",
        "step": 3,
        "max_steps": 60,
        "method": "grpo",
        "environment": "calculator",
        "attempts": [{"number": 1, "status": "running", "reason": ""}],
        "checkpoints": [{"id": 7, "step": 4, "path": "/w/4", "is_final": False, "is_best": True}],
        "first_heldout_success": 0.25,
        "last_heldout_success": 0.5,
        "traceback": None,
        "missing": [],
    } | changes


def page(*items: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"items": list(items), "next": cursor}
