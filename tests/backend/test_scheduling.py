"""Runs start when they fit, stop in every status; messages leave only after the commit."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from backend import maintenance
from backend.outbox import enqueue, send_due
from backend.queue import SUBMIT
from tests.backend.api import Api, ended, make_run, observe, phase, read_run, send


async def test_one_run_is_active_and_the_next_says_what_it_waits_for(api: Api) -> None:
    ada = await api.user()
    first = await make_run(ada, name="première")
    api.clock.advance(1)
    second = await make_run(ada)
    assert first["status"] == second["status"] == "queued"
    await api.turn()
    await api.turn()
    assert (await read_run(ada, first["id"]))["status"] == "starting"
    waiting = await read_run(ada, second["id"])
    assert waiting["status"] == "queued"
    assert waiting["reason"] == (
        "Place 1 in the queue. Needs 2 CPUs, 0 free: "
        f"run première ({first['id']}) holds 2 until it ends."
    )
    assert waiting["queue_position"] == 1
    assert waiting["waiting_for"] == {"run_id": first["id"], "name": "première"}
    assert api.queue.sent == [("workers.submit", [f"{first['id']}-a1"])]

    driver = await api.driver(f"{first['id']}-a1")
    await send(driver, first["id"], api.batch([phase("running")]))
    await send(driver, first["id"], api.batch([ended("finished")]))
    await api.turn()
    waiting = await read_run(ada, second["id"])
    assert waiting["status"] == "queued"
    assert waiting["reason"].endswith("holds 2 until its processes are gone.")
    await api.gone(first["id"])
    await api.turn()
    started = await read_run(ada, second["id"])
    assert started["status"] == "starting"
    assert (started["waiting_for"], started["queue_position"]) == (None, None)
    assert api.queue.sent[1:] == [("workers.submit", [f"{second['id']}-a1"])]


async def test_a_run_names_the_one_it_waits_for_only_to_those_who_may_see_it(api: Api) -> None:
    ada, bob = await api.user(), await api.user("bob")
    first = await make_run(ada, name="secret plans")
    api.clock.advance(1)
    second = await make_run(bob)
    await api.turn()
    path = f"/experiments/{second['experiment_id']}"
    reason = "Place 1 in the queue. Needs 2 CPUs, 0 free: another run holds 2 until it ends."
    waiting = await read_run(bob, second["id"])
    assert (waiting["reason"], waiting["waiting_for"]) == (reason, None)
    assert [run["reason"] for run in (await bob.get("/runs")).json()["items"]] == [reason]
    assert [run["reason"] for run in (await bob.get(path)).json()["runs"]] == [reason]

    admin = await api.user("root", "admin")
    reason = reason.replace("another run", f"run secret plans ({first['id']})")
    waiting = await read_run(admin, second["id"])
    assert waiting["reason"] == reason
    assert waiting["waiting_for"] == {"run_id": first["id"], "name": "secret plans"}
    assert [run["reason"] for run in (await admin.get(path)).json()["runs"]] == [reason]


async def test_a_run_that_waits_for_the_next_one_says_so(api: Api) -> None:
    ada = await api.user()
    runs = []
    for _ in range(3):
        runs.append(await make_run(ada))
        api.clock.advance(1)
    await api.turn()
    before = await read_run(ada, runs[2]["id"])
    driver = await api.driver(f"{runs[0]['id']}-a1")
    await send(driver, runs[0]["id"], api.batch([ended("finished")]))
    await api.gone(runs[0]["id"])
    await api.turn()
    after = await read_run(ada, runs[2]["id"])
    assert after["waiting_for"]["run_id"] == runs[1]["id"]
    assert after["cursor"] > before["cursor"]
    assert (before["queue_position"], after["queue_position"]) == (2, 1)


async def test_a_turn_without_news_changes_nothing(api: Api) -> None:
    ada = await api.user()
    first, second = await make_run(ada), await make_run(ada)
    await api.turn()
    cursors = [(await read_run(ada, run["id"]))["cursor"] for run in (first, second)]
    await api.turn()
    assert [(await read_run(ada, run["id"]))["cursor"] for run in (first, second)] == cursors


async def test_two_processes_never_start_two_runs(api: Api, database_url: str) -> None:
    ada = await api.user()
    for _ in range(3):
        await make_run(ada)
    other = Api(database_url, api.settings.home)
    await api.see_nodes()
    try:
        contexts = [api.context, other.context] * 3
        await asyncio.gather(*(maintenance.turn(context) for context in contexts))
    finally:
        await other.close()
    runs = (await ada.get("/runs")).json()["items"]
    assert sorted(run["status"] for run in runs) == ["queued", "queued", "starting"]
    assert len(api.queue.sent) + len(other.queue.sent) == 1


async def test_a_turn_is_skipped_while_another_process_holds_the_lease(api: Api) -> None:
    async with api.context.database.session() as session:
        lease = text("select pg_advisory_xact_lock(:key)")
        await session.execute(lease, {"key": maintenance.SCHEDULER_LOCK})
        assert not await maintenance.turn(api.context)
    assert await maintenance.turn(api.context)


async def test_a_queued_run_is_stopped_at_once(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    answer = await ada.post(f"/runs/{run['id']}/stop")
    assert answer.status_code == 202
    assert answer.json()["status"] == "stopped"
    assert answer.json()["reason"] == "Stopped by ada before it started."
    assert answer.json()["stop_requested_by"] == "ada"
    await api.turn()
    assert api.queue.sent == []


async def test_a_run_whose_submission_was_not_sent_is_stopped_at_once(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    await api.see_nodes()
    async with api.context.database.session() as session:
        await maintenance.schedule(session, api.clock())
        await session.commit()
    assert (await read_run(ada, run["id"]))["status"] == "starting"
    answer = await ada.post(f"/runs/{run['id']}/stop")
    assert answer.json()["status"] == "stopped"
    await api.turn()
    assert api.queue.sent == []


@pytest.mark.parametrize("is_running", [False, True])
async def test_an_active_run_is_asked_to_stop_and_no_message_is_needed(
    api: Api, is_running: bool
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    if is_running:
        await send(driver, run_id, api.batch([phase("running")]))
    answer = await ada.post(f"/runs/{run_id}/stop")
    assert answer.status_code == 202
    assert answer.json()["status"] == "stopping"
    again = await ada.post(f"/runs/{run_id}/stop")
    assert again.json()["cursor"] == answer.json()["cursor"]
    api.queue.sent.clear()
    api.clock.advance(60)
    await api.turn()
    assert api.queue.sent == []  # what is due to end it the workers are told at each look


async def test_a_driver_that_stops_in_time_is_not_stopped_by_force(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await ada.post(f"/runs/{run_id}/stop")
    # The workers' own way to stop a driver is a signal as well.
    await send(driver, run_id, api.batch([ended("stopped", "The driver received SIGTERM.")]))
    await observe(api, run_id, "succeeded")
    run = await read_run(ada, run_id)
    assert run["status"] == "stopped"
    assert run["reason"] == "Stopped on request by ada."
    api.queue.sent.clear()
    api.clock.advance(60)
    await api.turn()
    assert api.queue.sent == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("The driver received SIGTERM.", "The driver received SIGTERM."),
        ("", "The driver stopped and did not say why; nobody had asked Lagoon for it."),
    ],
)
async def test_of_a_driver_that_stops_though_nobody_asked_only_its_own_words_are_said(
    api: Api, said: str, reason: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([ended("stopped", said)]))
    run = await read_run(ada, run_id)
    assert run["status"] == "stopped"
    assert run["reason"] == reason


@pytest.mark.parametrize("outcome", ["finished", "stopped", "failed"])
async def test_a_run_that_has_ended_cannot_be_stopped(api: Api, outcome: str) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([ended(outcome)]))
    answer = await ada.post(f"/runs/{run_id}/stop")
    assert answer.status_code == 409
    assert outcome in answer.json()["detail"]
    assert (await read_run(ada, run_id))["stop_requested_at"] is None


async def test_a_transaction_that_rolls_back_sends_nothing(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    async with api.context.database.session() as session:
        enqueue(session, SUBMIT, f"{run['id']}-a1", api.clock())
        await session.flush()
        async with api.context.database.session() as other:
            assert await send_due(other, api.queue, api.clock()) == 0
        await session.rollback()
    async with api.context.database.session() as session:
        assert await send_due(session, api.queue, api.clock()) == 0
    assert api.queue.sent == []


async def test_a_message_waits_for_a_broker_that_is_away(api: Api) -> None:
    ada = await api.user()
    api.queue.is_away = True
    run = await make_run(ada)
    await api.turn()
    await api.turn()
    api.queue.is_away = False
    await api.turn()
    assert api.queue.sent == []  # it is not yet time to try again
    api.clock.advance(3)
    await api.turn()
    await api.turn()
    assert api.queue.sent == [("workers.submit", [f"{run['id']}-a1"])]


async def test_a_submission_that_left_no_trace_is_sent_again(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    attempt = f"{run['id']}-a1"
    await api.turn()
    api.clock.advance(119)
    await api.turn()
    assert len(api.queue.sent) == 1
    api.clock.advance(2)
    await api.turn()
    assert api.queue.sent == [("workers.submit", [attempt])] * 2
    body = {"submission_id": f"run-{attempt}"}
    assert (
        await api.workers.post(f"/internal/attempts/{attempt}/submitted", json=body)
    ).status_code == 204
    api.clock.advance(200)
    await api.turn()
    assert len(api.queue.sent) == 2
