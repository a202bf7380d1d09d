"""The dashboard in front of the real API: what the fake answers is what the real one does."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from dashboard.client import Api, ApiProblem, NotFound, NotSignedIn
from dashboard.watch import RunWatch
from lagoon.metrics import (
    HELDOUT_SUCCESS,
    LEDGER_DROPPED,
    LOSS,
    REWARD_MEAN,
    TOTAL_HISTOGRAM,
)
from tests.backend.api import PASSWORD, ended, phase, send, step
from tests.backend.api import Api as RealApi
from tests.dashboard import canned
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page_on, text


def history() -> list[dict[str, Any]]:
    """What a driver tells of two steps, the second of which goes wrong."""
    turn = {"role": "assistant", "text": "call 3+4", "seconds": 0.02, "error": None}
    shown = canned.trajectory(1)
    episode = {key: shown[key] for key in shown if key != "turns"}
    return [
        phase("running", "training"),
        step(0, heldout__success=0.25),
        step(1, trainer__loss=0.5, reward__mean=0.2),
        step(2, trainer__loss="NaN", reward__mean=0.3),
        {"type": "step", "at": 1.9e9, "step": 2, "points": [
            {"name": LEDGER_DROPPED.name, "value": 2, "labels": {"reason": "too old"}}]},
        {"type": "histogram", "at": 1.9e9, "step": 2, "name": TOTAL_HISTOGRAM.name,
         "counts": {"0": 7, "2": 3}},
        {"type": "trajectory", "at": 1.9e9, **episode, "turns": [turn]},
        {"type": "log", "at": 1.9e9, "lines": ["step 1", "step 2"]},
    ]  # fmt: skip


async def test_a_runs_whole_life_reads_as_the_dashboard_expects(api: RealApi, url: str) -> None:
    await api.user()
    with httpx.Client(base_url=url, trust_env=False) as http:
        ticket = await asyncio.to_thread(Api(http).sign_in_ticket, "ada", PASSWORD)
        answer = await asyncio.to_thread(http.get, "/api/v1/signin", params={"ticket": ticket})
        viewer = Api(http, answer.cookies[api.settings.session_cookie])
        made = await asyncio.to_thread(_create_twice, viewer)
        await api.turn()
        driver = await api.driver(f"{made['id']}-a1")
        await send(driver, made["id"], api.batch(history()))
        await asyncio.to_thread(_read_running, viewer, made["id"])
        await asyncio.to_thread(_look_at_every_tab, http, viewer, made["id"])
        last = [ended("failed", "The environment raised.", "Traceback: boom")]
        await send(driver, made["id"], api.batch(last))
        await asyncio.to_thread(_read_failed, viewer, made["id"])


def _create_twice(viewer: Api) -> Any:
    assert viewer.me()["username"] == "ada"
    experiment = viewer.create_experiment("A question", "# Why?")
    viewer.update_experiment(experiment["id"], "A better question", "Because.")
    assert viewer.experiment(experiment["id"])["title"] == "A better question"
    runs = [
        viewer.create_run(
            "one", canned.GRPO, experiment_id=experiment["id"], idempotency_key="the same"
        )
        for _ in range(2)
    ]
    assert runs[0]["id"] == runs[1]["id"]
    assert [run["id"] for run in viewer.runs(experiment_id=experiment["id"])] == [runs[0]["id"]]
    return runs[0]


def _read_running(viewer: Api, run_id: str) -> None:
    watch = RunWatch(run_id)
    detail = watch.refresh(viewer)
    assert watch.refresh(viewer) is detail
    assert detail["status"] == "running"
    assert detail["first_nan"] == {"name": LOSS.name, "step": 2}
    (loss,) = watch.curves(viewer, [LOSS])
    assert loss.values[1] == 0.5
    assert loss.values[2] != loss.values[2]
    (dropped,) = watch.curves(viewer, [LEDGER_DROPPED])
    assert dropped.labels == {"reason": "too old"}
    after = viewer.metrics(run_id, [REWARD_MEAN.name], after=detail["cursor"])
    assert after["series"] == []
    counts = viewer.histogram(run_id, TOTAL_HISTOGRAM.name)
    assert counts["total"]["counts"] == {"0": 7, "2": 3}
    assert viewer.trajectories(run_id, split="train")["items"][0]["turns"][0]["text"] == "call 3+4"
    log = viewer.log(run_id)
    assert [line["line"] for line in log["items"]] == ["step 1", "step 2"]
    assert viewer.log(run_id, after=log["next_after"])["items"] == []


def _look_at_every_tab(http: httpx.Client, viewer: Api, run_id: str) -> None:
    for tab in ("overview", "staleness", "pool", "learning", "trajectories", "logs", "events"):
        tested = open_page_on(viewer, "run", run=run_id, tab=tab)
        assert not tested.exception
        assert "First NaN: trainer/loss at step 2." in text(tested)
    tested = open_page_on(viewer, "launch", clone=run_id)
    assert not tested.exception
    assert "name: grpo" in tested.code[-1].value


def _read_failed(viewer: Api, run_id: str) -> None:
    detail = viewer.run(run_id)
    assert (detail["status"], detail["reason"]) == ("failed", "The environment raised.")
    assert "boom" in (detail["traceback"] or "")
    assert viewer.events(run_id)[-1]["to"] == "failed"
    assert viewer.runs()[0]["first_heldout_success"] == 0.25
    assert HELDOUT_SUCCESS.name in {metric["name"] for metric in viewer.catalogue()["metrics"]}
    with pytest.raises(ApiProblem) as refused:
        viewer.stop_run(run_id)
    assert refused.value.status == 409
    with pytest.raises(NotFound):
        viewer.run("rnothing")
    viewer.sign_out()
    with pytest.raises(NotSignedIn):
        viewer.me()


async def test_the_fake_and_the_real_api_answer_in_the_same_shape(api: RealApi, url: str) -> None:
    client = await api.user()
    token = client.headers["Authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=url, trust_env=False) as http:
        real = Api(http, token)
        killed, driver = await api.started(client)
        await send(driver, killed, api.batch([{**ended("failed", "No."), "is_transient": True}]))
        await api.gone(killed)
        made = await asyncio.to_thread(
            lambda: real.create_run("a", canned.GRPO, experiment_id=None, idempotency_key="k")
        )
        shown = await asyncio.to_thread(lambda: (real.run(made["id"]), real.runs()[0]))
        await api.turn()
        await asyncio.to_thread(
            lambda: real.create_run("b", canned.GRPO, experiment_id=None, idempotency_key="l")
        )
        queue = await asyncio.to_thread(real.queue)
        stored = await asyncio.to_thread(real.storage)
    fake = FakeApi().runs["r7k2m9qd"]
    assert set(shown[0]) <= set(fake)
    assert set(shown[1]) <= set(fake)
    for part, entries in FakeApi().queue.items():
        assert set(entries[0]) == set(queue[part][0])  # type: ignore[literal-required]
    canned_storage = canned.storage([fake])
    assert set(stored) == set(canned_storage)
    assert set(stored["total"]) == set(canned_storage["total"])
    assert set(stored["runs"][0]) == set(canned_storage["runs"][0])
