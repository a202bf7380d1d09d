"""Changes of a running run: asked for, told to the driver, applied at a version, kept as a log."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from backend.models import Run
from tests.backend.api import (
    Api,
    config,
    ended,
    heartbeat,
    history,
    make_run,
    phase,
    read_run,
    send,
    step,
)

PACE = {"name": "pace", "num_prompts": 4, "group_size": 2, "target": 8}
PACED = {"config": config(method=PACE)}


def applied(version: int, *numbers: int, **refused: str) -> dict[str, Any]:
    """``_3="why"`` is the refusal of change 3."""
    why = {name.removeprefix("_"): reason for name, reason in refused.items()}
    return {"type": "controls", "at": 1.9e9, "version": version, "numbers": numbers,
            "refused": why}  # fmt: skip


async def change(
    user: httpx.AsyncClient, run_id: str, status: int = 202, key: str = "", **settings: Any
) -> dict[str, Any]:
    """``rollout__max_concurrent`` is ``rollout.max_concurrent``."""
    body = {"settings": {name.replace("__", "."): value for name, value in settings.items()}}
    headers = {"Idempotency-Key": key} if key else {}
    answer = await user.post(f"/runs/{run_id}/controls", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def controls(user: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    answer = await user.get(f"/runs/{run_id}/controls")
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def states(user: httpx.AsyncClient, run_id: str) -> list[tuple[str, int | None, int | None]]:
    found = (await controls(user, run_id))["changes"]
    return [(each["state"], each["attempt"], each["version"]) for each in found]


async def running(api: Api) -> tuple[httpx.AsyncClient, str, httpx.AsyncClient]:
    ada = await api.user()
    run_id, driver = await api.started(ada, **PACED)
    await send(driver, run_id, api.batch([heartbeat(), phase("running", "Training.")]))
    return ada, run_id, driver


async def test_a_change_is_told_to_the_driver_until_it_says_at_which_version_it_holds(
    api: Api,
) -> None:
    ada, run_id, driver = await running(api)
    asked = await change(ada, run_id, method__target=12, rollout__max_concurrent=32)
    assert asked["values"]["method.target"] == 12
    wanted = {"method.target": 12, "rollout.max_concurrent": 32}
    for _ in range(2):
        told = await send(driver, run_id, api.batch([heartbeat()]))
        assert told["changes"] == [{"number": 1, "settings": wanted}]
    api.clock.advance(3)
    told = await send(driver, run_id, api.batch([applied(7, 1)]))
    assert told["changes"] == []
    [one] = (await controls(ada, run_id))["changes"]
    assert one["before"] == {"method.target": 8, "rollout.max_concurrent": 128}
    assert (one["requested_by"], one["state"]) == ("ada", "applied")
    assert (one["attempt"], one["version"]) == (1, 7)
    assert one["applied_at"] > one["requested_at"]
    assert one["words"] == "target 8 → 12, max_concurrent 128 → 32"
    entries = [e for e in await history(ada, run_id) if e["kind"] == "change"]
    assert [(e["reason"], e["by"]) for e in entries] == [
        ("Asked for: target 8 → 12, max_concurrent 128 → 32.", "ada"),
        ("From version 7 on: target 8 → 12, max_concurrent 128 → 32.", "ada"),
    ]


@pytest.mark.parametrize(
    ("settings", "fields", "words"),
    [
        ({"method__target": 2}, ["method.target", "method.num_prompts"], "below the batch of 4"),
        ({"method__max_staleness": 2}, ["method.max_staleness", "method.name"], "PACE has no such"),
        ({"budget__max_steps": 2}, ["budget.max_steps"], "cannot be changed while"),
        ({"method__target": 8}, ["method.target"], "is 8 already"),
        ({"paused": False}, ["paused"], "is not paused"),
        ({}, ["settings"], "nothing is asked for"),
    ],
)
async def test_a_change_that_cannot_be_honoured_is_refused_and_changes_nothing(
    api: Api, settings: dict[str, Any], fields: list[str], words: str
) -> None:
    ada, run_id, _ = await running(api)
    before = await controls(ada, run_id)
    refused = await change(ada, run_id, 422, **settings)
    assert refused["type"].endswith(":invalid-change")
    [error] = refused["errors"]
    assert error["fields"] == fields
    assert words in error["message"]
    assert await controls(ada, run_id) == before
    assert (await read_run(ada, run_id))["num_changes"] == 0


async def test_a_key_makes_one_change_and_only_who_sees_the_run_makes_any(api: Api) -> None:
    ada, run_id, _ = await running(api)
    for _ in range(2):
        assert len((await change(ada, run_id, key="k", method__gamma=1.0))["changes"]) == 1
    await change(ada, run_id, 422, key="k", method__gamma=2.0)
    eve = await api.user("eve")
    await change(eve, run_id, 404, method__gamma=3.0)
    assert (await eve.get(f"/runs/{run_id}/controls")).status_code == 404
    assert (await api.client().get(f"/runs/{run_id}/controls")).status_code == 401


async def test_a_run_that_has_ended_or_is_to_stop_is_not_changed(api: Api) -> None:
    ada, run_id, driver = await running(api)
    await change(ada, run_id, method__gamma=1.0)
    await ada.post(f"/runs/{run_id}/stop")
    stopping = await change(ada, run_id, 409, method__gamma=2.0)
    assert "The run is stopping" in stopping["detail"]
    await send(driver, run_id, api.batch([ended("finished")]))
    over = await change(ada, run_id, 409, paused=True)
    assert over["detail"].startswith("The run has finished: ")
    assert await states(ada, run_id) == [("never", None, None)]


async def test_what_is_seen_of_changes_that_take_effect_together_is_the_last(api: Api) -> None:
    ada, run_id, driver = await running(api)
    await change(ada, run_id, paused=True)
    await change(ada, run_id, method__gamma=1.0)
    await change(ada, run_id, paused=False)
    assert not (await read_run(ada, run_id))["is_paused"]
    await send(driver, run_id, api.batch([applied(3, 1, 3, _2="No gamma here.\nReally.")]))
    assert await states(ada, run_id) == [
        ("superseded", 1, None), ("refused", 1, None), ("applied", 1, 3),
    ]  # fmt: skip
    found = await controls(ada, run_id)
    assert found["changes"][1]["why"] == "No gamma here."
    assert found["values"]["method.gamma"] == 4.0  # what was refused holds for nobody
    again = await send(driver, run_id, api.batch([heartbeat(activity="paused")]))
    assert again["changes"] == []


async def test_a_change_on_top_of_one_that_the_driver_refuses_does_not_close_the_log(
    api: Api,
) -> None:
    ada, run_id, driver = await running(api)
    await change(ada, run_id, paused=True, rollout__max_concurrent=256)
    await change(ada, run_id, rollout__max_concurrent=128)
    await send(driver, run_id, api.batch([applied(3, _1="Too many.")]))
    # By now the second asks for what is: it has no effect, and is refused next.
    assert (await controls(ada, run_id))["values"]["rollout.max_concurrent"] == 128
    assert not (await read_run(ada, run_id))["is_paused"]  # it was a part of the first
    await send(driver, run_id, api.batch([applied(3, _2="Is 128 already.")]))
    await change(ada, run_id, paused=True)
    assert [state for state, *_ in await states(ada, run_id)] == ["refused", "refused", "pending"]


async def test_a_run_whose_settings_are_refused_by_now_is_read_paused_and_ended(api: Api) -> None:
    ada, run_id, driver = await running(api)
    async with api.context.database.session() as session:
        run = await session.get_one(Run, run_id)
        run.config = run.config | {"model": run.config["model"] | {"path": "smollm2-135m-instruct"}}
        await session.commit()
    assert (await controls(ada, run_id))["values"]["rollout.max_concurrent"] == 128
    await change(ada, run_id, paused=True)
    why = await change(ada, run_id, 422, rollout__max_concurrent=127)
    assert "episodes of up to" in str(why)
    await change(ada, run_id, rollout__max_concurrent=64)
    await failed_transiently(api, driver, run_id)
    assert (await read_run(ada, run_id))["status"] == "starting"


async def failed_transiently(api: Api, driver: httpx.AsyncClient, run_id: str) -> httpx.AsyncClient:
    """The run's second attempt, whose driver has its credential."""
    last = ended("failed", "Killed.") | {"is_transient": True}
    await send(driver, run_id, api.batch([last]))
    await api.gone(run_id)
    api.clock.advance(3600)
    await api.turn()
    return await api.driver(f"{run_id}-a2")


async def test_the_next_attempt_begins_with_the_changes_and_corrects_what_it_rolled_back(
    api: Api,
) -> None:
    ada, run_id, driver = await running(api)
    await change(ada, run_id, method__target=9)
    await send(driver, run_id, api.batch([applied(2, 1), step(4, reward__mean=0.1)]))
    await change(ada, run_id, method__target=10)
    await send(driver, run_id, api.batch([applied(4, 2)]))
    await change(ada, run_id, method__gamma=2.0)  # nobody hears of it any more
    second = await failed_transiently(api, driver, run_id)
    given = (await second.get(f"/attempts/{run_id}-a2/config")).json()
    assert [each["number"] for each in given["changes"]] == [1, 2, 3]
    assert given["config"]["method"]["target"] == 8  # what the run was made with stays as it is
    batch = api.batch([heartbeat(), applied(3, 1, 2, 3)], 1, "second")
    answer = await second.post(f"/attempts/{run_id}-a2/events", json=batch)
    assert answer.json()["changes"] == []
    assert await states(ada, run_id) == [("applied", 1, 2), ("applied", 2, 3), ("applied", 2, 3)]


async def test_a_paused_run_is_resumed_by_that_name_whether_it_goes_or_was_stopped(
    api: Api,
) -> None:
    ada, run_id, driver = await running(api)
    await change(ada, run_id, paused=True)
    resumed = (await ada.post(f"/runs/{run_id}/resume", json={})).json()
    assert (resumed["status"], resumed["is_paused"]) == ("running", False)
    assert (await ada.post(f"/runs/{run_id}/resume", json={})).status_code == 409
    await change(ada, run_id, paused=True)
    await ada.post(f"/runs/{run_id}/stop")
    await send(driver, run_id, api.batch([ended("stopped")]))
    await api.gone(run_id)
    assert (await read_run(ada, run_id))["status"] == "stopped"
    resumed = (await ada.post(f"/runs/{run_id}/resume", json={})).json()
    assert (resumed["status"], resumed["is_paused"]) == ("queued", False)
    words = [each["words"] for each in (await controls(ada, run_id))["changes"]]
    assert words == ["paused", "resumed", "paused", "resumed"]


async def test_a_queued_run_is_changed_before_it_starts_and_a_fork_takes_the_changes_with_it(
    api: Api,
) -> None:
    ada, run_id, driver = await running(api)
    other = await make_run(ada, **PACED)
    await change(ada, other["id"], paused=True)
    assert await states(ada, other["id"]) == [("pending", None, None)]
    await change(ada, run_id, method__target=16)
    saved = {"type": "checkpoint", "at": 1.9e9, "step": 3, "path": "/x/step-3", "is_final": False}
    await send(driver, run_id, api.batch([applied(1, 1), saved]))
    [checkpoint] = (await read_run(ada, run_id))["checkpoints"]
    body = {"checkpoint_id": checkpoint["id"], "name": "fork"}
    fork = await ada.post(f"/runs/{run_id}/fork", json=body)
    assert fork.json()["config"]["method"]["target"] == 16
    deleted = await ada.delete(f"/runs/{other['id']}")
    assert deleted.status_code == 200
