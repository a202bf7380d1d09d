"""Leases live as long as processes may; people change the order; everybody sees why they wait."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from backend.models import Attempt, Lease
from backend.slots.leases import lease_is_free
from lagoon.status import RunStatus
from tests.backend.api import START, Api, config, ended, make_run, phase, read_run, send


async def queue(user: httpx.AsyncClient) -> dict[str, Any]:
    answer = await user.get("/queue")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def order(shown: dict[str, Any]) -> list[str]:
    return [item["run"]["run_id"] if item["run"] else "?" for item in shown["items"]]


async def held(api: Api) -> list[tuple[str, str, float, float, int]]:
    """The leases that are not released: attempt, node, CPUs, GPUs, fencing token."""
    async with api.context.database.session() as session:
        found = select(Lease).where(Lease.released_at.is_(None)).order_by(Lease.id)
        return [
            (each.attempt_id, each.node_id, each.cpus, each.gpus, each.fencing_token)
            for each in await session.scalars(found)
        ]


async def blocked(api: Api, user: httpx.AsyncClient, count: int) -> list[str]:
    """A run that holds the machine, and ``count`` that wait for it; all ids."""
    ids = []
    for _ in range(count + 1):
        ids.append((await make_run(user))["id"])
        api.clock.advance(1)
    await api.turn()
    return ids


async def test_nothing_starts_before_ray_was_seen_and_long_after(api: Api) -> None:
    ada = await api.user()
    run_id = (await make_run(ada))["id"]
    nodes, api.nodes = api.nodes, []
    await api.turn()
    run = await read_run(ada, run_id)
    assert run["status"] == "queued"
    assert run["reason"].endswith("Ray has not been seen yet; nothing starts before it is.")
    api.nodes = nodes
    await api.see_nodes()
    api.nodes = []
    api.clock.advance(61)
    await api.turn()
    assert "more than a minute ago" in (await read_run(ada, run_id))["reason"]
    api.nodes = nodes
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "starting"


async def test_runs_that_fit_start_together_each_on_its_node(api: Api) -> None:
    api.nodes = [("n1", 2, 0), ("n2", 4, 0)]
    ada = await api.user()
    runs = [(await make_run(ada))["id"] for _ in range(4)]
    await api.turn()
    assert [(await read_run(ada, id))["status"] for id in runs] == ["starting"] * 3 + ["queued"]
    leases = await held(api)
    assert sorted({(attempt[:8], node) for attempt, node, *_ in leases}) == sorted(
        [(runs[0], "n1"), (runs[1], "n2"), (runs[2], "n2")]
    )
    assert len(api.queue.sent) == 3
    driver = await api.driver(f"{runs[1]}-a1")
    places = (await driver.get(f"/attempts/{runs[1]}-a1/config")).json()["places"]
    assert places == {"generator 0": "n2", "trainer": "n2"}


async def test_a_lease_carries_the_token_of_the_newest_credential(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    assert await held(api) == [(f"{run_id}-a1", "n1", 1, 0, 1)] * 2
    await api.driver(f"{run_id}-a1")
    assert {lease[-1] for lease in await held(api)} == {2}


async def test_a_lease_lasts_until_the_processes_are_seen_gone_after_the_end(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    waiting = (await make_run(ada))["id"]
    await api.gone(run_id, "running")
    api.clock.advance(1)
    await send(driver, run_id, api.batch([phase("running"), ended("finished")]))
    await api.turn()
    [lease] = (await queue(ada))["leases"]
    assert (lease["status"], lease["cpus"]) == ("finished", 2)
    listed = (await api.workers.get("/internal/attempts", params={"active": "true"})).json()
    assert [(each["id"], each["status"]) for each in listed["items"]] == [
        (f"{run_id}-a1", "finished")
    ]
    answer = await ada.delete(f"/runs/{run_id}")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lagoon:problem:processes-left")
    await api.gone(run_id, "unreachable")
    await api.turn()
    assert len(await held(api)) == 2
    await api.gone(run_id, "succeeded")
    await api.turn()
    assert {lease[0] for lease in await held(api)} == {f"{waiting}-a1"}
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 200


async def test_an_attempt_that_was_never_handed_out_leaves_its_slots_at_once(api: Api) -> None:
    ada = await api.user()
    api.queue.is_away = True
    run_id = (await make_run(ada))["id"]
    await api.turn()
    assert len(await held(api)) == 2
    api.clock.advance(700)
    await ada.post(f"/runs/{run_id}/stop")
    api.clock.advance(31)
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "stopped"
    await api.turn()
    assert await held(api) == []


async def test_without_a_lease_there_is_no_credential_and_no_configuration(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    async with api.context.database.session() as session:
        for lease in await session.scalars(select(Lease)):
            lease.released_at = api.clock()
        await session.commit()
    answer = await api.workers.post(f"/internal/attempts/{run_id}-a1/token")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lagoon:problem:no-lease")
    assert (await driver.get(f"/attempts/{run_id}-a1/config")).status_code == 409


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("token", [0, 1])
def test_a_lease_is_free_only_when_the_processes_are_gone(
    status: RunStatus, gone: bool, token: int
) -> None:
    gone_at = START if gone else None
    attempt = Attempt(status=status.value, fencing_token=token, gone_at=gone_at)
    assert lease_is_free(attempt) == (status.is_terminal and (token == 0 or gone))


async def test_a_machine_whose_ray_restarts_keeps_what_is_held_on_it(api: Api) -> None:
    ada = await api.user()
    await blocked(api, ada, 1)
    body = {"id": "n9", "name": "machine-n1", "cpus": 2, "gpus": 0}
    cluster = {"cpus": 2, "gpus": 0, "nodes": [body]}
    api.clock.advance(5)
    seen = {"ray": "ok", "cluster": cluster}
    assert (await api.workers.post("/internal/observations", json=seen)).status_code == 204
    [node] = (await queue(ada))["nodes"]
    assert (node["id"], node["cpus_free"]) == ("n9", 0)


async def test_the_queue_shows_needs_and_holders_and_hides_other_peoples_runs(api: Api) -> None:
    ada, bob = await api.user(), await api.user("bob")
    first = await make_run(ada, name="secret")
    second = await make_run(bob, name="mine")
    await api.turn()
    shown = await queue(bob)
    [item], [lease], [node] = shown["items"], shown["leases"], shown["nodes"]
    assert item["run"] == {"run_id": second["id"], "name": "mine"}
    assert item["reason"] == "Needs 2 CPUs, 0 free: another run holds 2 until it ends."
    assert (item["owner"], item["cpus"], item["gpus"], item["num_processes"]) == ("bob", 2, 0, 2)
    assert item["may_change"]
    assert (lease["run"], lease["owner"], lease["status"]) == (None, "ada", "starting")
    assert lease["nodes"] == [{"node": "machine-n1", "cpus": 2, "gpus": 0}]
    assert (node["name"], node["cpus"], node["cpus_free"]) == ("machine-n1", 2, 0)
    shown = await queue(ada)
    assert shown["items"][0]["run"] is None
    assert not shown["items"][0]["may_change"]
    assert shown["leases"][0]["run"]["run_id"] == first["id"]
    assert "secret" not in (await bob.get("/queue")).text


async def test_users_take_turns_in_the_queue(api: Api) -> None:
    ada, bob = await api.user(), await api.user("bob")
    await blocked(api, ada, 2)
    await make_run(bob)
    shown = await queue(await api.user("root", "admin"))
    assert [item["owner"] for item in shown["items"]] == ["bob", "ada", "ada"]


async def test_a_move_changes_the_order_and_is_history(api: Api) -> None:
    ada = await api.user()
    _, a, b, c = await blocked(api, ada, 3)
    assert order(await queue(ada)) == [a, b, c]
    answer = await ada.post("/queue/moves", json={"run_id": c, "before": a})
    assert answer.status_code == 200, answer.text
    assert order(answer.json()) == [c, a, b]
    answer = await ada.post("/queue/moves", json={"run_id": c, "after": a})
    assert order(answer.json()) == order(await queue(ada)) == [a, c, b]
    later = (await make_run(ada))["id"]
    assert order(await queue(ada))[-1] == later
    history = (await ada.get(f"/runs/{c}/events")).json()["items"]
    moves = [event for event in history if event["kind"] == "moved"]
    assert [(event["reason"], event["by"]) for event in moves] == [
        (f"Moved before {a}.", "ada"),
        (f"Moved after {a}.", "ada"),
    ]
    await api.turn()
    assert (await read_run(ada, c))["queue_position"] == 2


async def test_a_move_that_changes_nothing_leaves_no_trace(api: Api) -> None:
    ada = await api.user()
    _, a, b = await blocked(api, ada, 2)
    before = (await read_run(ada, a))["cursor"]
    assert (await ada.post("/queue/moves", json={"run_id": a, "before": b})).status_code == 200
    assert (await read_run(ada, a))["cursor"] == before


async def test_moves_that_would_do_nothing_are_refused_with_the_reason(api: Api) -> None:
    ada, bob, root = await api.user(), await api.user("bob"), await api.user("root", "admin")
    active, a, b = await blocked(api, ada, 2)
    others = (await make_run(bob))["id"]
    await ada.patch(f"/runs/{b}/priority", json={"priority": "low"})
    before = order(await queue(root))

    async def refused(user: httpx.AsyncClient, **body: Any) -> tuple[int, str]:
        answer = await user.post("/queue/moves", json=body)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code, answer.json()["type"].removeprefix("urn:lagoon:problem:")

    assert await refused(ada, run_id=a, before=active) == (409, "not-queued")
    assert await refused(ada, run_id=active, before=a) == (409, "not-queued")
    assert await refused(ada, run_id=a, before=b) == (409, "other-priority")
    assert await refused(ada, run_id=a, before=others) == (404, "not-found")
    assert await refused(root, run_id=a, before=others) == (409, "other-owner")
    assert await refused(bob, run_id=a, before=b) == (404, "not-found")
    assert await refused(ada, run_id=a, before=a) == (422, "invalid-request")
    assert await refused(ada, run_id=a) == (422, "invalid-request")
    assert await refused(ada, run_id=a, before=b, after=b) == (422, "invalid-request")
    assert await refused(ada, run_id=a, below=b) == (422, "invalid-request")
    assert await refused(ada, run_id="r\0", before=b) in [
        (404, "not-found"),
        (422, "unstorable-value"),
    ]
    assert order(await queue(root)) == before


async def test_an_admin_moves_anybodys_runs(api: Api) -> None:
    ada, root = await api.user(), await api.user("root", "admin")
    _, a, b = await blocked(api, ada, 2)
    assert (await root.post("/queue/moves", json={"run_id": b, "before": a})).status_code == 200
    assert order(await queue(ada)) == [b, a]


async def test_a_higher_priority_comes_first_and_only_an_admin_may_give_it(api: Api) -> None:
    ada, root = await api.user(), await api.user("root", "admin")
    _, a, b, c = await blocked(api, ada, 3)
    answer = await ada.patch(f"/runs/{c}/priority", json={"priority": "high"})
    assert answer.status_code == 403
    assert (await read_run(ada, c))["priority"] == "normal"
    answer = await root.patch(f"/runs/{c}/priority", json={"priority": "high"})
    assert (answer.status_code, answer.json()["priority"]) == (200, "high")
    answer = await ada.patch(f"/runs/{a}/priority", json={"priority": "low"})
    assert answer.status_code == 200
    assert order(await queue(ada)) == [c, b, a]
    again = await ada.patch(f"/runs/{a}/priority", json={"priority": "low"})
    assert again.json()["cursor"] == answer.json()["cursor"]
    history = (await ada.get(f"/runs/{c}/events")).json()["items"]
    assert (history[-1]["kind"], history[-1]["by"]) == ("priority", "root")
    assert history[-1]["reason"] == "Priority high; it was normal."


async def test_a_priority_is_changed_only_while_the_run_waits(api: Api) -> None:
    ada = await api.user()
    active, a = await blocked(api, ada, 1)
    answer = await ada.patch(f"/runs/{active}/priority", json={"priority": "low"})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lagoon:problem:not-queued")
    answer = await ada.patch(f"/runs/{a}/priority", json={"priority": "urgent"})
    assert answer.status_code == 422
    bob = await api.user("bob")
    answer = await bob.patch(f"/runs/{a}/priority", json={"priority": "low"})
    assert answer.status_code == 404
    assert {(await read_run(ada, id))["priority"] for id in (active, a)} == {"normal"}


async def test_a_run_that_asks_for_more_than_a_node_has_says_so_and_holds_nobody_up(
    api: Api,
) -> None:
    api.nodes = [("n1", 2, 0), ("n2", 2, 0)]
    ada = await api.user()
    wide = config(trainer={"cpus": 3})
    large = (await ada.post("/runs", json={"name": "large", "config": wide})).json()["id"]
    small = (await make_run(ada))["id"]
    await api.turn()
    run = await read_run(ada, large)
    assert run["status"] == "queued"
    assert "Its trainer needs 3 CPUs on one node, and no node has that" in run["reason"]
    assert (await read_run(ada, small))["status"] == "starting"


async def test_a_restart_shows_when_it_starts_and_after_what_before_it_joins_the_queue(
    api: Api,
) -> None:
    ada, bob = await api.user(), await api.user("bob")
    run_id, driver = await api.started(ada, name="secret")
    killed = {**ended("failed", "A generator died."), "is_transient": True}
    await send(driver, run_id, api.batch([phase("running"), killed]))
    await api.gone(run_id)
    shown = await queue(ada)
    assert shown["items"] == []
    assert shown["paused"] == [
        {
            "run": {"run_id": run_id, "name": "secret"},
            "owner": "ada",
            "priority": "normal",
            "cpus": 2.0,
            "gpus": 0.0,
            "num_processes": 2,
            "may_change": True,
            "restarts_at": "2030-01-01T12:00:05Z",
            "reason": "A generator died.",
        }
    ]
    [others] = (await queue(bob))["paused"]
    assert (others["run"], others["reason"], others["may_change"]) == (None, "", False)
    for seconds in (5, -3600):  # once the clock is set back by an hour, it has joined, too
        api.clock.advance(seconds)
        shown = await queue(ada)
        assert shown["paused"] == []
        assert order(shown) == [run_id]
