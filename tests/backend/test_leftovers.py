"""What a dead driver left in its spool arrives once, and changes nothing that was decided since."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.backend.api import (
    Api,
    config,
    ended,
    heartbeat,
    history,
    observe,
    phase,
    read_run,
    send,
    step,
)
from tests.backend.test_ingest import histogram, log, trajectory
from tests.backend.test_resuming import resumed, saved

RUNNING = phase("running", "Training.")
FINAL = config(budget={"max_restarts": 0})


async def leave(
    api: Api, run_id: str, number: int, *events: dict[str, Any], attempt: int = 1, status: int = 202
) -> dict[str, Any]:
    """What the API says to a batch that the workers found."""
    answer = await api.workers.post(
        f"/internal/attempts/{run_id}-a{attempt}/events",
        json=api.batch(events, number=number),
    )
    assert answer.status_code == status, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def killed(api: Api, run_id: str, attempt: int = 1) -> None:
    """The workers see that nothing of an attempt is left."""
    await api.gone(run_id, "failed", attempt)


async def judged(api: Api, run_id: str, attempt: int = 1) -> None:
    """The driver has been silent for long enough: its attempt is over, and gone."""
    api.clock.advance(40)
    await killed(api, run_id, attempt)


async def begun(api: Api, run_id: str, attempt: int) -> tuple[httpx.AsyncClient, list[str]]:
    """The driver of the next attempt, and the checkpoints that it is told."""
    api.clock.advance(301)
    await api.turn()
    driver = await api.driver(f"{run_id}-a{attempt}")
    told = (await driver.get(f"/attempts/{run_id}-a{attempt}/config")).json()
    return driver, told["checkpoints"]


async def say(
    driver: httpx.AsyncClient, run_id: str, attempt: int, number: int, *events: dict[str, Any]
) -> None:
    body = {"writer": "driver", "number": number, "events": list(events)}
    answer = await driver.post(f"/attempts/{run_id}-a{attempt}/events", json=body)
    assert answer.status_code == 202, answer.text


async def rewards(user: httpx.AsyncClient, run_id: str) -> dict[int, float]:
    """What is shown of the reward, by step."""
    read = await user.get(f"/runs/{run_id}/metrics", params={"name": "reward/mean"})
    shown: dict[int, float] = {}
    for series in read.json()["series"]:
        points = series["points"]
        shown |= dict(zip(points["step"], points["value"], strict=True))
    return shown


async def lines(user: httpx.AsyncClient, run_id: str) -> list[str]:
    return [item["line"] for item in (await user.get(f"/runs/{run_id}/log")).json()["items"]]


async def test_a_run_that_failed_for_good_shows_its_last_points_and_lines(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=FINAL)
    await send(driver, run_id, api.batch([RUNNING, step(1, reward__mean=0.1)], number=1))
    await judged(api, run_id)
    before = await read_run(ada, run_id)
    assert (before["status"], before["step"]) == ("failed", 1)
    last = [step(2, reward__mean=0.2), histogram(2, {"0": 3}), trajectory("t2"), log("out of luck")]
    answer = await leave(api, run_id, 2, *last, heartbeat(step=9), phase("stopping", "No."))
    assert answer == {"accepted_number": 2}
    await leave(api, run_id, 3, saved("/w/2", 2))
    after = await read_run(ada, run_id)
    assert await rewards(ada, run_id) == {1: 0.1, 2: 0.2}
    assert await lines(ada, run_id) == ["out of luck"]
    assert [item["step"] for item in after["checkpoints"]] == [2]
    assert after["step"] == 2
    for name in ("status", "reason", "ended_at"):
        assert after[name] == before[name]
    assert after["attempts"][0]["status"] == "failed"
    kinds = [item["kind"] for item in await history(ada, run_id)]
    assert kinds == ["created", "status", "status", "gone", "status"]


async def test_what_has_arrived_is_acknowledged_and_not_stored_again(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=FINAL)
    for number in (1, 2):
        await send(driver, run_id, api.batch([log(f"line {number}")], number=number))
    await judged(api, run_id)
    assert await leave(api, run_id, 1, log("line 1")) == {"accepted_number": 2}
    await asyncio.gather(*(leave(api, run_id, 3, log("line 3")) for _ in range(5)))
    assert await lines(ada, run_id) == ["line 1", "line 2", "line 3"]
    gap = await leave(api, run_id, 5, log("line 5"), status=409)
    assert gap["expected_number"] == 4


async def test_the_spool_of_a_driver_that_may_be_alive_is_its_own(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    unheard = await leave(api, run_id, 1, log("first"), status=409)
    assert unheard["type"].endswith("attempt-not-gone")
    await send(driver, run_id, api.batch([RUNNING, heartbeat()], number=1))
    await leave(api, run_id, 2, log("second"), status=409)
    await observe(api, run_id, "failed", num_processes=1)
    await leave(api, run_id, 2, log("second"), status=409)
    await observe(api, run_id, "running", num_processes=0)
    await leave(api, run_id, 2, log("second"), status=409)
    assert await lines(ada, run_id) == []
    assert (await api.workers.post("/internal/attempts/r0000000-a1/events")).status_code == 422
    body = api.batch([log("x")], number=1)
    for client, status in ((driver, 403), (ada, 403), (api.workers, 404)):
        answer = await client.post("/internal/attempts/r0000000-a1/events", json=body)
        assert answer.status_code == status


async def test_last_words_count_and_are_no_sign_of_life(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([RUNNING, heartbeat()], number=1))
    api.clock.advance(20)
    await killed(api, run_id)
    await leave(api, run_id, 2, step(4, reward__mean=0.4), heartbeat(step=4), saved("/w/4", 4))
    run = await read_run(ada, run_id)
    assert (run["status"], run["step"]) == ("running", 4)
    api.clock.advance(15)  # 35 s after it was heard, 15 s after the batch
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["attempts"][0]["status"]) == ("queued", "failed")


async def test_an_end_marker_that_was_left_says_how_the_run_ended(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([RUNNING], number=1))
    await api.gone(run_id, "succeeded")
    await leave(api, run_id, 2, step(4, reward__mean=0.4), ended("finished"))
    run = await read_run(ada, run_id)
    assert (run["status"], run["step"]) == ("finished", 4)


async def test_a_checkpoint_that_was_left_is_gone_on_from_when_it_arrives_in_time(api: Api) -> None:
    """The driver may have removed the one before: then there is no other to go on from."""
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([RUNNING, saved("/w/4", 4)], number=1))
    await judged(api, run_id)
    assert (await read_run(ada, run_id))["status"] == "queued"  # the next attempt is planned
    await leave(api, run_id, 2, step(8, reward__mean=0.8), saved("/w/8", 8, dropped=["/w/4"]))
    driver, told = await begun(api, run_id, 2)
    assert told == ["/w/8"]
    await say(driver, run_id, 2, 1, resumed(8), RUNNING, step(9, reward__mean=0.9))
    assert await rewards(ada, run_id) == {8: 0.8, 9: 0.9}


async def test_a_driver_that_may_not_speak_any_more_is_heard_though_its_processes_are_left(
    api: Api,
) -> None:
    """The next attempt may start beside them, and would be told of removed checkpoints alone."""
    ada = await api.user()
    run_id, driver = await api.started(ada)
    body = {"submission_id": f"run-{run_id}-a1"}
    await api.workers.post(f"/internal/attempts/{run_id}-a1/submitted", json=body)
    await send(driver, run_id, api.batch([RUNNING, saved("/w/4", 4)], number=1))
    api.clock.advance(40)
    await observe(api, run_id, "failed", num_processes=1)
    run = await read_run(ada, run_id)
    assert (run["status"], run["attempts"][0]["gone_at"]) == ("queued", None)
    await leave(api, run_id, 2, saved("/w/8", 8, dropped=["/w/4"]))
    assert [item["step"] for item in (await read_run(ada, run_id))["checkpoints"]] == [8]


async def test_an_attempt_that_was_stopped_in_the_queue_settles_nothing(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([RUNNING, saved("/w/4", 4)], number=1))
    await judged(api, run_id)
    await ada.post(f"/runs/{run_id}/stop")
    await leave(api, run_id, 2, saved("/w/8", 8, dropped=["/w/4"]))
    await ada.post(f"/runs/{run_id}/resume", json={})
    _, told = await begun(api, run_id, 3)
    assert told == ["/w/8"]


async def test_a_checkpoint_that_somebody_chose_stays_chosen(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=FINAL)
    await send(driver, run_id, api.batch([RUNNING, saved("/w/4", 4)], number=1))
    await judged(api, run_id)
    [four] = (await read_run(ada, run_id))["checkpoints"]
    await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": four["id"]})
    await leave(api, run_id, 2, saved("/w/8", 8))
    _, told = await begun(api, run_id, 2)
    assert told == ["/w/4"]


@pytest.mark.parametrize("has_resumed", [False, True])
async def test_what_arrives_after_the_next_attempt_has_begun_is_for_the_record(
    api: Api, has_resumed: bool
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    first = [RUNNING, step(4, reward__mean=0.4), saved("/w/4", 4)]
    await send(driver, run_id, api.batch(first, number=1))
    await judged(api, run_id)
    driver, told = await begun(api, run_id, 2)
    if has_resumed:
        await say(driver, run_id, 2, 1, resumed(4), RUNNING, heartbeat(step=4))
    before = await read_run(ada, run_id)
    late = [step(5, reward__mean=-1.0), step(8, reward__mean=-1.0), saved("/w/8", 8), RUNNING]
    await leave(api, run_id, 2, *late, log("late"), trajectory("late"), ended("finished"))
    after = await read_run(ada, run_id)
    # A list shows the newest value of any attempt until the next one has reported.
    changes = {name for name in before if before[name] != after[name]}
    assert changes <= {"cursor", "last_reward"}
    assert await lines(ada, run_id) == ["late"]
    assert (await driver.get(f"/attempts/{run_id}-a2/config")).json()["checkpoints"] == told
    if not has_resumed:
        await say(driver, run_id, 2, 1, resumed(4), RUNNING)
    await say(driver, run_id, 2, 2, step(5, reward__mean=0.5))
    assert await rewards(ada, run_id) == {4: 0.4, 5: 0.5}
    # The third goes on from what is known of the second, and of no late announcement.
    await judged(api, run_id, 2)
    _, told = await begun(api, run_id, 3)
    assert told == ["/w/4"]


async def test_an_attempt_that_nobody_heard_begin_replaces_nothing(api: Api) -> None:
    """Somebody went on from step 8; what the attempt before had begun with was not known then."""
    ada = await api.user()
    run_id, driver = await api.started(ada, config=FINAL)
    steps = [step(n, reward__mean=n / 10) for n in range(1, 9)]
    await send(driver, run_id, api.batch([RUNNING, *steps, saved("/w/4", 4), saved("/w/8", 8)], 1))
    await judged(api, run_id)
    ids = {item["step"]: item["id"] for item in (await read_run(ada, run_id))["checkpoints"]}
    await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": ids[4]})
    await begun(api, run_id, 2)
    await judged(api, run_id, 2)
    await ada.post(f"/runs/{run_id}/resume", json={"checkpoint_id": ids[8]})
    driver, told = await begun(api, run_id, 3)
    assert told == ["/w/8"]
    await leave(api, run_id, 1, resumed(4), RUNNING, step(5, reward__mean=-1.0), attempt=2)
    await leave(api, run_id, 2, histogram(6, {"0": 1}), log("unheard"), attempt=2)
    await say(driver, run_id, 3, 1, resumed(8), RUNNING, step(9, reward__mean=0.9))
    assert await rewards(ada, run_id) == {n: n / 10 for n in range(1, 10)}
    assert await lines(ada, run_id) == ["unheard"]
