"""Runs go on: by themselves after a failure, or because somebody asks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from lagoon.checkpoints import Manifest, described_files, seal
from tests.backend import api as backend
from tests.backend.api import Api, config, make_run, read_run

KILLED = {
    "type": "ended",
    "at": 1.9e9,
    "outcome": "failed",
    "reason": "Generator 0 failed: its process was killed.",
    "traceback": "Traceback",
    "is_transient": True,
}
BROKEN = {**KILLED, "reason": "The environment raised an error.", "is_transient": False}
RUNNING = {"type": "status", "at": 1.9e9, "phase": "running", "message": "Training."}
STOPPED = {"type": "ended", "at": 1.9e9, "outcome": "stopped", "reason": ""}
FINISHED = {**STOPPED, "outcome": "finished"}


async def send(
    api: Api, driver: httpx.AsyncClient, run_id: str, *events: dict[str, Any], attempt: int = 1
) -> dict[str, Any]:
    """What the API says to a batch of an attempt."""
    batch = api.batch(events, writer=f"{run_id}-{attempt}")
    answer = await driver.post(f"/attempts/{run_id}-a{attempt}/events", json=batch)
    assert answer.status_code == 202, answer.text
    content: dict[str, Any] = answer.json()
    return content


def step(number: int, reward: float) -> dict[str, Any]:
    return backend.step(number, reward__mean=reward)


def saved(path: Path | str, at_step: int, **changes: Any) -> dict[str, Any]:
    event = {"type": "checkpoint", "at": 1.9e9, "step": at_step, "path": str(path)}
    return {**event, "is_final": False, "num_bytes": 7} | changes


def resumed(at_step: int, path: Path | str = "") -> dict[str, Any]:
    return {"type": "resumed", "at": 1.9e9, "step": at_step, "path": str(path), "refused": []}


def whole(folder: Path, at_step: int) -> Path:
    """A checkpoint on disk."""
    (folder / "lagoon").mkdir(parents=True)
    (folder / "model.safetensors").write_text("weights")
    manifest = Manifest(
        at=1.0,
        step=at_step,
        method="grpo",
        model="tiny",
        is_final=False,
        heldout_success=None,
        files=described_files(folder),
    )
    seal(folder, manifest)
    return folder


async def reasons(user: httpx.AsyncClient, run_id: str, kind: str) -> list[str]:
    events = (await user.get(f"/runs/{run_id}/events")).json()["items"]
    return [event["reason"] for event in events if event["kind"] == kind]


async def next_driver(api: Api, run_id: str, number: int) -> tuple[httpx.AsyncClient, Any]:
    """The driver of the attempt that a turn starts, and what it is told."""
    if number > 1:
        await api.gone(run_id, attempt=number - 1)
    await api.turn()
    driver = await api.driver(f"{run_id}-a{number}")
    return driver, (await driver.get(f"/attempts/{run_id}-a{number}/config")).json()


async def test_a_run_whose_process_died_starts_again_from_its_newest_checkpoint(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    events = [RUNNING, step(4, 0.5), saved("/w/4", 4), step(8, 0.5), saved("/w/8", 8), KILLED]
    await send(api, driver, run_id, *events)
    run = await read_run(ada, run_id)
    assert run["status"] == "queued"
    assert run["reason"] == (
        "Starts again in 5 s (restart 1 of 3): Generator 0 failed: its process was killed."
    )
    assert [attempt["status"] for attempt in run["attempts"]] == ["failed", "queued"]
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "queued"  # it waits
    api.clock.advance(6)
    driver, told = await next_driver(api, run_id, 2)
    assert told["checkpoints"] == ["/w/8", "/w/4"]
    assert told["owns_checkpoints"] is True
    [folder] = told["earlier_folders"]
    assert folder.endswith(f"attempts/{run_id}-a1/checkpoints")
    await send(api, driver, run_id, resumed(8), RUNNING, step(9, 0.5), FINISHED, attempt=2)
    run = await read_run(ada, run_id)
    assert (run["status"], run["step"], run["traceback"]) == ("finished", 9, None)
    assert [attempt["resumed_step"] for attempt in run["attempts"]] == [None, 8]
    assert await reasons(ada, run_id, "resumed") == ["Goes on from step 8."]


async def test_what_would_only_happen_again_ends_the_run(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING, saved("/w/4", 4), BROKEN)
    run = await read_run(ada, run_id)
    assert (run["status"], run["reason"]) == ("failed", "The environment raised an error.")
    assert len(run["attempts"]) == 1


async def test_restarts_end_after_as_many_as_were_allowed(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=config(budget={"max_restarts": 2}))
    for number in (1, 2, 3):
        await send(api, driver, run_id, RUNNING, KILLED, attempt=number)
        if number < 3:
            api.clock.advance(301)
            driver, told = await next_driver(api, run_id, number + 1)
            assert told["checkpoints"] == []
    run = await read_run(ada, run_id)
    assert run["status"] == "failed"
    assert run["reason"].endswith("its process was killed. It had started again 2 times.")
    assert [attempt["is_restart"] for attempt in run["attempts"]] == [False, True, True]


async def test_only_restarts_that_get_no_further_are_counted(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=config(budget={"max_restarts": 2}))
    reached = [5, 3, 7, 7, 7]
    for number, last in enumerate(reached, start=1):
        await send(api, driver, run_id, RUNNING, step(last, 0.5), KILLED, attempt=number)
        if number < len(reached):
            api.clock.advance(301)
            driver, _ = await next_driver(api, run_id, number + 1)
    assert (await read_run(ada, run_id))["status"] == "failed"
    said = await reasons(ada, run_id, "status")
    counted = [words.split("(")[1].split(")")[0] for words in said if "Starts again" in words]
    ordinals = ["restart 1 of 2", "restart 2 of 2", "restart 1 of 2", "restart 2 of 2"]
    assert counted == ordinals


async def test_the_driver_of_an_attempt_that_was_replaced_may_write_nothing(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING, KILLED)
    before = await read_run(ada, run_id)
    answer = await driver.post(
        f"/attempts/{run_id}-a1/events",
        json={"writer": "driver", "number": 2, "events": [step(5, 0.5)]},
    )
    assert answer.status_code == 401
    assert await read_run(ada, run_id) == before


async def test_a_stop_that_was_asked_for_is_not_undone_by_a_restart(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING)
    await ada.post(f"/runs/{run_id}/stop")
    await send(api, driver, run_id, KILLED)
    assert (await read_run(ada, run_id))["status"] == "failed"


async def test_later_steps_of_an_earlier_attempt_are_superseded_everywhere(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    histogram = {"type": "histogram", "at": 1.9e9, "name": "staleness/total_tokens"}
    steps = [step(n, n / 10) for n in range(1, 7)]
    name = "reward/mean"
    counts = [{**histogram, "step": n, "counts": {"0": n}} for n in range(1, 7)]
    await send(api, driver, run_id, RUNNING, *steps, *counts, saved("/w/4", 4), KILLED)
    api.clock.advance(6)
    driver, _ = await next_driver(api, run_id, 2)
    await send(api, driver, run_id, resumed(4), attempt=2)
    read = (await ada.get(f"/runs/{run_id}/metrics", params={"name": name})).json()
    assert read["series"][0]["points"]["step"] == [1, 2, 3, 4]
    params = {"name": "staleness/total_tokens"}
    read = (await ada.get(f"/runs/{run_id}/histograms", params=params)).json()
    assert [item["step"] for item in read["items"]] == [1, 2, 3, 4]
    await send(api, driver, run_id, RUNNING, step(5, 0.9), attempt=2)
    read = (await ada.get(f"/runs/{run_id}/metrics", params={"name": name})).json()
    assert read["series"][0]["points"]["value"] == [0.1, 0.2, 0.3, 0.4, 0.9]
    words = "Goes on from step 4. Steps 5 to 6 are superseded."
    assert await reasons(ada, run_id, "resumed") == [words]


async def test_a_stopped_run_is_resumed_and_forgets_that_it_was_to_stop(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING, saved("/w/4", 4))
    await ada.post(f"/runs/{run_id}/stop")
    await send(api, driver, run_id, STOPPED)
    await backend.observe(api, run_id, "succeeded")
    answer = await ada.post(f"/runs/{run_id}/resume", json={})
    assert answer.status_code == 202
    assert answer.json()["status"] == "queued"
    assert answer.json()["reason"] == "Resumed by ada."
    assert answer.json()["stop_requested_by"] is None
    driver, told = await next_driver(api, run_id, 2)
    assert told["checkpoints"] == ["/w/4"]
    sent = await send(api, driver, run_id, resumed(4), RUNNING, attempt=2)
    assert sent["stop_requested"] is False
    assert (await read_run(ada, run_id))["status"] == "running"


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "The run is starting"),
        ([RUNNING], "The run is running"),
        ([RUNNING, FINISHED], "reached the end of its budget. Fork it"),
    ],
)
async def test_a_run_that_cannot_be_resumed_says_why_and_stays_as_it_is(
    api: Api, events: list[dict[str, Any]], words: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    if events:
        await send(api, driver, run_id, *events)
    before = await read_run(ada, run_id)
    answer = await ada.post(f"/runs/{run_id}/resume", json={})
    assert answer.status_code == 409
    assert words in answer.json()["detail"]
    assert await read_run(ada, run_id) == before


@pytest.mark.parametrize("damage", ["truncated", "exchanged", "no manifest", "gone"])
async def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_offered(
    api: Api, tmp_path: Path, damage: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    older, newer = whole(tmp_path / "step-000004", 4), whole(tmp_path / "step-000008", 8)
    await send(api, driver, run_id, RUNNING, saved(older, 4), saved(newer, 8), BROKEN)
    if damage == "truncated":
        (newer / "model.safetensors").write_text("weig")
    elif damage == "exchanged":
        (newer / "model.safetensors").write_text("stheigw")
    elif damage == "no manifest":
        (newer / "lagoon" / "manifest.json").unlink()
    else:
        shutil.rmtree(newer)
    before = await read_run(ada, run_id)
    good, bad = (item["id"] for item in before["checkpoints"])
    answer = await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": bad})
    assert answer.status_code == 409
    problem = answer.json()
    assert problem["usable_checkpoint_id"] == good
    assert "The checkpoint of step 4" in problem["detail"]
    assert "Nothing was changed" in problem["detail"]
    assert await read_run(ada, run_id) == before
    answer = await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": good})
    assert answer.status_code == 202
    _, told = await next_driver(api, run_id, 2)
    assert told["checkpoints"] == [str(older)]
    assert told["earlier_folders"] == []  # somebody chose it: nothing after it is made again


async def test_checkpoints_that_were_superseded_are_not_gone_on_from(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING, saved("/w/4", 4), saved("/w/8", 8), BROKEN)
    first = (await read_run(ada, run_id))["checkpoints"][0]["id"]
    await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": first})
    driver, _ = await next_driver(api, run_id, 2)
    await send(api, driver, run_id, resumed(4), RUNNING, KILLED, attempt=2)
    api.clock.advance(6)
    driver, told = await next_driver(api, run_id, 3)
    assert told["checkpoints"] == ["/w/4"]
    [folder] = told["earlier_folders"]  # the updates of attempt 1 after step 4 are superseded, too
    assert folder.endswith(f"attempts/{run_id}-a2/checkpoints")
    await send(api, driver, run_id, KILLED, attempt=3)  # before it went on from anything
    api.clock.advance(30)
    _, told = await next_driver(api, run_id, 4)
    assert told["checkpoints"] == ["/w/4"]


async def test_a_fork_begins_with_its_parents_checkpoint_and_leaves_it_alone(
    api: Api, tmp_path: Path
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    path = whole(tmp_path / "final", 8)
    await send(api, driver, run_id, RUNNING, saved(path, 8, is_final=True), FINISHED)
    await api.gone(run_id)
    parent = await read_run(ada, run_id)
    body = {"checkpoint_id": parent["checkpoints"][0]["id"], "name": "further"}
    longer = config(budget={"max_steps": 200})
    answer = await ada.post(f"/runs/{run_id}/fork", json={**body, "config": longer})
    assert answer.status_code == 201
    fork = answer.json()
    assert (fork["parent_run_id"], fork["parent_step"]) == (run_id, 8)
    driver, told = await next_driver(api, fork["id"], 1)
    refused = await ada.delete(f"/runs/{run_id}")  # it may have to begin once more
    assert (refused.status_code, refused.json()["type"][-10:]) == (409, "fork-waits")
    assert told["checkpoints"] == [str(path)]
    assert told["owns_checkpoints"] is False
    await send(api, driver, fork["id"], resumed(8), RUNNING, step(9, 0.1), KILLED)
    api.clock.advance(6)
    driver, told = await next_driver(api, fork["id"], 2)
    assert (told["checkpoints"], told["owns_checkpoints"]) == ([str(path)], False)
    assert await read_run(ada, run_id) == parent
    await send(api, driver, fork["id"], RUNNING, saved("/w/9", 9), attempt=2)
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 200
    assert (await read_run(ada, fork["id"]))["parent_run_id"] is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"method": {"name": "es"}}, "method.name"),
        (
            {"model": {"path": "smollm2-135m-instruct"}, "rollout": {"max_concurrent": 64}},
            "model.path",
        ),
        ({"budget": {"max_steps": 8}}, "budget.max_steps"),
    ],
)
async def test_a_fork_that_cannot_begin_with_the_checkpoint_names_the_field(
    api: Api, changes: dict[str, Any], field: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING, saved("/w/8", 8), FINISHED)
    [checkpoint] = (await read_run(ada, run_id))["checkpoints"]
    body = {"checkpoint_id": checkpoint["id"], "name": "f", "config": config(**changes)}
    answer = await ada.post(f"/runs/{run_id}/fork", json=body)
    assert answer.status_code == 422
    assert [each["fields"] for each in answer.json()["errors"]] == [[field]]
    assert len((await ada.get("/runs")).json()["items"]) == 1


async def test_a_silent_driver_whose_job_ray_has_lost_is_restarted(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(api, driver, run_id, RUNNING)
    job = {"attempt_id": f"{run_id}-a1", "ray_status": "failed", "message": "killed"}
    cluster = {"cpus": 8, "gpus": 0}
    body = {"ray": "ok", "cluster": cluster, "jobs": [job]}
    api.clock.advance(31)
    await api.workers.post("/internal/observations", json=body)
    run = await read_run(ada, run_id)
    assert run["status"] == "queued"
    assert "Its Ray job failed before the driver could say why." in run["reason"]


async def test_a_run_of_somebody_else_is_neither_resumed_nor_forked(api: Api) -> None:
    ada, eve = await api.user(), await api.user("eve")
    run = await make_run(ada)
    for path, body in (("resume", {}), ("fork", {"checkpoint_id": 1, "name": "f"})):
        answer = await eve.post(f"/runs/{run['id']}/{path}", json=body)
        assert answer.status_code == 404
