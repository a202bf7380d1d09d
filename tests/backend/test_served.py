"""The API behind a real server, with the workers' own client and event sink in front of it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from pathlib import Path

import httpx
import pytest

from lagoon.events import ControlsApplied, LogLogged, RunEnded, StatusLogged, StepLogged
from lagoon.metrics import LOSS
from lagoon.points import Point
from lagoon.spools import spool_of
from tests.backend.api import Api, ended, make_run, read_run, send
from workers import sink
from workers.assignment import fetch_assignment, open_connection
from workers.driver import run_attempt
from workers.leftovers import deliver
from workers.platform import ClusterSeen, JobSeen, NodeSeen, Platform
from workers.sink import PlatformSink
from workers.steering import Controls


async def test_the_workers_client_and_the_sink_speak_this_api(
    api: Api, url: str, tmp_path: Path
) -> None:
    ada = await api.user()
    run_id = (await make_run(ada))["id"]
    await api.turn()
    stop_seen = threading.Event()
    service_token = api.settings.service_token_path.read_text().strip()

    def work() -> list[str]:
        with Platform(url, service_token) as platform:
            [attempt] = platform.active_attempts()
            token = platform.mint_token(attempt.id).token
            platform.report_submitted(attempt.id, f"run-{attempt.id}")
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers) as client:
                config = client.get(f"/api/v1/attempts/{attempt.id}/config").json()
                sink = PlatformSink(
                    client, attempt.id, tmp_path / "spool", stop_seen.set, period_seconds=0.01
                )
                now = time.time()
                sink.log(StatusLogged(at=now, phase="running", message="training"))
                point = Point(name=LOSS.name, value=float("nan"))
                sink.log(StepLogged(at=now, step=1, points=(point,)))
                sink.log(LogLogged(at=now, lines=("a line",)))
                sink.log(RunEnded(at=now, outcome="finished", reason="All done."))
                assert sink.close()
            platform.report_seen(
                reachable=True,
                cluster=ClusterSeen((NodeSeen("n1", "machine", 2, 0),)),
                jobs=[JobSeen(attempt.id, "succeeded", "", num_processes=0, num_killed=0)],
            )
            return [attempt.id, config["name"]]

    assert await asyncio.to_thread(work) == [f"{run_id}-a1", "a run"]
    run = await read_run(ada, run_id)
    assert run["status"] == "finished"
    assert run["reason"] == "All done."
    assert run["first_nan"] == {"name": LOSS.name, "step": 1}
    assert not stop_seen.is_set()


class Cut(httpx.HTTPTransport):
    """The way to the API, until the first batch has arrived. After it nothing more is sent."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        self.handle_request = self._refuse  # type: ignore[method-assign]
        return answer

    def _refuse(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(401, text="urn:lagoon:problem:not-signed-in")


async def test_what_a_driver_left_is_delivered_once_and_ends_its_run(
    api: Api, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "MAX_BATCH", 3)
    ada = await api.user()
    run_id, driver = await api.started(ada)
    attempt = f"{run_id}-a1"
    spool = spool_of(tmp_path, attempt)
    service_token = api.settings.service_token_path.read_text().strip()

    def die() -> None:
        with httpx.Client(base_url=url, headers=driver.headers, transport=Cut()) as client:
            dying = PlatformSink(client, attempt, spool, lambda: None, period_seconds=0.0)
            now = time.time()
            dying.log(StatusLogged(at=now, phase="running", message="training"))
            for step in range(1, 6):
                point = Point(name=LOSS.name, value=step)
                dying.log(StepLogged(at=now, step=step, points=(point,)))
                dying.log(LogLogged(at=now, lines=(f"step {step}",)))
            dying.log(RunEnded(at=now, outcome="finished", reason="All done."))
            assert not dying.close()

    def bring() -> list[str]:
        with Platform(url, service_token) as platform:
            early = deliver(attempt, platform, tmp_path, time.monotonic() + 60)
            jobs = [JobSeen(attempt, "failed", "", num_processes=0, num_killed=0)]
            platform.report_seen(reachable=True, cluster=None, jobs=jobs)
            return [early, *(deliver(attempt, platform, tmp_path, math.inf) for _ in range(2))]

    await asyncio.to_thread(die)
    assert await asyncio.to_thread(bring) == ["later", "all", "all"]
    run = await read_run(ada, run_id)
    words = "All done. The driver finished; Ray calls its job failed."
    assert (run["status"], run["reason"], run["step"]) == ("finished", words, 5)
    read = (await ada.get(f"/runs/{run_id}/metrics", params={"name": LOSS.name})).json()
    assert read["series"][0]["points"]["value"] == [1, 2, 3, 4, 5]
    lines = [item["line"] for item in (await ada.get(f"/runs/{run_id}/log")).json()["items"]]
    assert [line for line in lines if line.startswith("step ")] == [
        f"step {n}" for n in range(1, 6)
    ]


async def test_a_driver_whose_attempt_was_handed_on_starts_nothing(
    api: Api, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_id, _ = await api.started(await api.user())
    attempt = f"{run_id}-a1"
    newer = await api.driver(attempt)
    credential = tmp_path / "credential"
    credential.write_text(newer.headers["Authorization"].removeprefix("Bearer "))

    def ask() -> tuple[str, int, int | None, int]:
        with open_connection(url, credential.read_text()) as client:
            given = fetch_assignment(client, attempt, fencing_token=2)
        # One that was started earlier, and finds the newer one's credential in the file.
        code = run_attempt(attempt, url, credential, fencing_token=1)
        return given.run_id, given.attempt, given.fencing_token, code

    assert await asyncio.to_thread(ask) == (run_id, 1, 2, 1)
    assert "was handed to a newer driver (fencing token 2, not 1)" in caplog.text
    assert "starts nothing" in caplog.text


async def test_a_change_goes_from_a_person_to_the_driver_and_back_as_an_applied_one(
    api: Api, url: str, tmp_path: Path
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    attempt, path = f"{run_id}-a1", f"/runs/{run_id}/controls"
    token = driver.headers["Authorization"].removeprefix("Bearer ")
    await ada.post(path, json={"settings": {"rollout.max_concurrent": 64}})

    def begin() -> tuple[httpx.Client, Controls, PlatformSink]:
        client = open_connection(url, token)
        given = fetch_assignment(client, attempt, fencing_token=1)
        controls = Controls(given.config, given.changes)
        ignored: list[None] = []
        spool, stop = tmp_path / "spool", lambda: ignored.append(None)
        return (
            client,
            controls,
            PlatformSink(
                client, attempt, spool, stop, on_changes=controls.deliver, period_seconds=0.01
            ),
        )

    client, controls, sink = await asyncio.to_thread(begin)
    assert controls.config.rollout.max_concurrent == 64
    said, _ = controls.take()
    await ada.post(path, json={"settings": {"paused": True}})
    news = asyncio.Event()
    controls.connect(news.set)
    sink.log(ControlsApplied(at=1.0, version=4, numbers=tuple(said)))
    await asyncio.wait_for(news.wait(), 30)
    said, _ = controls.take()
    assert controls.is_paused
    sink.log(ControlsApplied(at=2.0, version=5, numbers=tuple(said)))
    assert await asyncio.to_thread(sink.close)
    client.close()
    found = (await ada.get(path)).json()["changes"]
    assert [(each["state"], each["version"]) for each in found] == [("applied", 4), ("applied", 5)]


async def test_a_driver_whose_attempt_is_over_starts_nothing(
    api: Api, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_id, driver = await api.started(await api.user())
    await send(driver, run_id, api.batch([ended("failed", "No.")]))
    credential = tmp_path / "credential"
    credential.write_text(driver.headers["Authorization"].removeprefix("Bearer "))
    assert await asyncio.to_thread(run_attempt, f"{run_id}-a1", url, credential, 1) == 1
    assert "409" in caplog.text
    assert "starts nothing" in caplog.text


async def test_an_oversized_body_is_refused_by_the_served_api_and_the_next_one_taken(
    api: Api, url: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    async with httpx.AsyncClient(base_url=url, headers=driver.headers) as client:
        path = f"/api/v1/attempts/{run_id}-a1/events"
        answer = await client.post(path, content=b"x" * (9 << 20))
        assert answer.status_code == 413
        answer = await client.post(path, json=api.batch([], number=1))
        assert answer.status_code == 202
    await send(driver, run_id, api.batch([], number=2))
