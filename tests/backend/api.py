"""The whole API in the test's process, with a hand-set clock and a list for a task queue."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from argon2 import PasswordHasher
from fastapi import FastAPI

from backend import maintenance
from backend.accounts import repository
from backend.app import create_app
from backend.attempts.schemas import ObservedNode
from backend.context import Context
from backend.settings import Settings
from backend.slots import nodes

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
PASSWORD = "correct horse"
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""The same algorithm as in production, at a cost that suits tests."""


class HandClock:
    """A clock that moves when the test says so."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class ListQueue:
    """A task queue that is a list, and can be away."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[Any]]] = []
        self.is_away = False

    def send(self, task: str, args: list[Any]) -> None:
        self.ping()
        self.sent.append((task, args))

    def ping(self) -> None:
        if self.is_away:
            raise ConnectionError("the broker is away")

    def close(self) -> None:
        """Nothing to let go of."""


class Api:
    """One API process, without its periodic task: the test takes the turns."""

    def __init__(self, database_url: str, home: Path, **settings: Any) -> None:
        self.clock = HandClock()
        self.queue = ListQueue()
        self.settings = Settings(
            home=home,
            database_url=database_url,
            broker_url="redis://:hidden@localhost:1/0",
            **settings,
        )
        self.app: FastAPI = create_app(
            self.settings, queue=self.queue, clock=self.clock, passwords=CHEAP
        )
        self.context: Context = self.app.state.context
        self.nodes: list[tuple[str, float, float]] = [("n1", 2, 0)]
        self._batch_numbers: dict[str, itertools.count[int]] = {}

    def client(
        self, token: str | None = None, address: str = "127.0.0.1", **headers: str
    ) -> httpx.AsyncClient:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(
                self.app, raise_app_exceptions=False, client=(address, 1)
            ),
            base_url="http://api.test/api/v1",
            headers=headers,
        )

    async def user(self, username: str = "ada", role: str = "member") -> httpx.AsyncClient:
        """A client signed in as a new user."""
        async with self.context.database.session() as session:
            user = await repository.add_user(
                session, username, CHEAP.hash(PASSWORD), role, self.clock()
            )
            assert user is not None
            token = await repository.add_sign_in(session, user.id, self.clock())
            await session.commit()
        return self.client(str(token))

    @property
    def workers(self) -> httpx.AsyncClient:
        """A client with the workers' service token."""
        return self.client(self.settings.service_token_path.read_text().strip())

    async def see_nodes(self) -> None:
        """Have the workers see the nodes of ``nodes`` (id, CPUs, GPUs) now."""
        seen = [
            ObservedNode(id=id, name=f"machine-{id}", cpus=cpus, gpus=gpus)
            for id, cpus, gpus in self.nodes
        ]
        async with self.context.database.session() as session:
            await nodes.take(session, seen, self.clock())
            await session.commit()

    async def turn(self) -> None:
        """One turn of the periodic work, after a look at the nodes."""
        await self.see_nodes()
        assert await maintenance.turn(self.context)

    async def gone(self, run_id: str, ray_status: str = "succeeded", attempt: int = 1) -> None:
        """Ray says that the job of an attempt is over: it holds nothing any more."""
        job = {"attempt_id": f"{run_id}-a{attempt}", "ray_status": ray_status}
        answer = await self.workers.post(
            "/internal/observations", json={"ray": "ok", "jobs": [job]}
        )
        assert answer.status_code == 204, answer.text

    async def started(self, user: httpx.AsyncClient, **run: Any) -> tuple[str, httpx.AsyncClient]:
        """A run that was sent to the workers, and a client for its driver."""
        run_id = (await make_run(user, **run))["id"]
        await self.turn()
        return run_id, await self.driver(f"{run_id}-a1")

    async def driver(self, attempt_id: str) -> httpx.AsyncClient:
        answer = await self.workers.post(f"/internal/attempts/{attempt_id}/token")
        assert answer.status_code == 200, answer.text
        return self.client(answer.json()["token"])

    def batch(
        self, events: Iterable[dict[str, Any]], number: int | None = None, writer: str = "driver"
    ) -> dict[str, Any]:
        """A batch as a driver sends it."""
        numbers = self._batch_numbers.setdefault(writer, itertools.count(1))
        return {
            "writer": writer,
            "number": next(numbers) if number is None else number,
            "events": list(events),
        }

    async def close(self) -> None:
        await self.context.database.close()


@asynccontextmanager
async def running_api(database_url: str, home: Path, **settings: Any) -> AsyncIterator[Api]:
    api = Api(database_url, home, **settings)
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The URL at which ``app`` is served, on a port of its own, without its periodic task."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_config=None, ws="none"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)  # the server's own flag is what is waited for
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def config(**changes: Any) -> dict[str, Any]:
    """A small valid configuration."""
    return {"environment": {"name": "sudoku4"}, "method": {"name": "grpo"}, **changes}


async def make_run(user: httpx.AsyncClient, name: str = "a run", **body: Any) -> dict[str, Any]:
    answer = await user.post("/runs", json={"name": name, "config": config(), **body})
    assert answer.status_code == 201, answer.text
    detail: dict[str, Any] = answer.json()
    return detail


async def read_run(user: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    answer = await user.get(f"/runs/{run_id}")
    assert answer.status_code == 200, answer.text
    detail: dict[str, Any] = answer.json()
    return detail


async def send(
    driver: httpx.AsyncClient, run_id: str, batch: dict[str, Any], status: int = 202
) -> dict[str, Any]:
    answer = await driver.post(f"/attempts/{run_id}-a1/events", json=batch)
    assert answer.status_code == status, answer.text
    content: dict[str, Any] = answer.json()
    return content


def step(number: int, at: float = 1.9e9, **values: Any) -> dict[str, Any]:
    """A step event; metric names are written with ``__`` for the slash."""
    points = [{"name": name.replace("__", "/"), "value": value} for name, value in values.items()]
    return {"type": "step", "at": at, "step": number, "points": points}


async def observe(
    api: Api, run_id: str, status: str, message: str | None = None, *, boot_id: str = "", **job: int
) -> None:
    """What the workers saw of the run's first attempt."""
    seen = {"attempt_id": f"{run_id}-a1", "ray_status": status, "message": message, **job}
    cluster = {"cpus": 2, "gpus": 0}
    body = {"ray": "ok", "boot_id": boot_id, "cluster": cluster, "jobs": [seen]}
    answer = await api.workers.post("/internal/observations", json=body)
    assert answer.status_code == 204, answer.text


async def history(user: httpx.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    answer = await user.get(f"/runs/{run_id}/events")
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def heartbeat(**fields: Any) -> dict[str, Any]:
    return {"type": "heartbeat", "at": 1.9e9, "step": 0, "pid": 7, "host": "h", **fields}


def phase(name: str, message: str = "") -> dict[str, Any]:
    return {"type": "status", "at": 1.9e9, "phase": name, "message": message}


def ended(outcome: str, reason: str = "", traceback: str | None = None) -> dict[str, Any]:
    return {
        "type": "ended",
        "at": 1.9e9,
        "outcome": outcome,
        "reason": reason,
        "traceback": traceback,
    }
