"""Stop means stopped: what was asked, heard, saved, ended and gone, and what is due meanwhile."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from backend.outbox import remind
from tests.backend.api import (
    Api,
    ended,
    heartbeat,
    history,
    make_run,
    observe,
    phase,
    read_run,
    send,
)

HERE, ELSEWHERE = "boot-1 pid:[1]", "boot-2 pid:[1]"
CHECKPOINT = {
    "type": "checkpoint", "at": 1.9e9, "step": 3, "path": "/x/final", "is_final": True,
}  # fmt: skip


async def running(api: Api, boot_id: str = HERE) -> tuple[httpx.AsyncClient, str, Any]:
    """A user, and a running run of theirs whose driver was heard from ``boot_id``."""
    ada = await api.user()
    run_id, driver = await api.started(ada)
    body = {"submission_id": f"run-{run_id}-a1"}
    await api.workers.post(f"/internal/attempts/{run_id}-a1/submitted", json=body)
    await send(driver, run_id, api.batch([heartbeat(boot_id=boot_id, step=3), phase("running")]))
    api.clock.advance(20)
    return ada, run_id, driver


async def measure(api: Api) -> list[str]:
    listed = (await api.workers.get("/internal/attempts")).json()["items"]
    return [item["measure"] for item in listed]


async def test_every_step_of_a_stop_is_seen_with_its_time(api: Api) -> None:
    ada, run_id, driver = await running(api)
    await ada.post(f"/runs/{run_id}/stop")
    times = [api.clock().isoformat()]

    async def after(*events: dict[str, Any]) -> dict[str, Any]:
        api.clock.advance(1)
        await send(driver, run_id, api.batch(events))
        times.append(api.clock().isoformat())
        return await read_run(ada, run_id)

    await after(phase("stopping", "The stop was heard."))
    await after(phase("stopping", "Saving the weights."), CHECKPOINT)
    run = await after(ended("stopped"))
    assert run["status"] == "stopping"
    assert run["reason"] == "Its driver has ended; its processes have not been seen gone yet."
    await observe(api, run_id, "running", boot_id=HERE, num_processes=3)
    await observe(api, run_id, "succeeded", boot_id=HERE, num_processes=2)
    assert (await read_run(ada, run_id))["status"] == "stopping"
    api.clock.advance(1)
    times.append(api.clock().isoformat())
    await observe(api, run_id, "succeeded", boot_id=HERE, num_processes=0)
    run = await read_run(ada, run_id)
    assert (run["status"], run["desired"]) == ("stopped", "stop")
    assert run["reason"] == "Stopped on request by ada."
    [attempt] = run["attempts"]
    names = ("stop_heard_at", "stop_saved_at", "marker_at", "gone_at")
    seen = [run["stop_requested_at"], *(attempt[name] for name in names)]
    assert [moment.replace("Z", "+00:00") for moment in seen] == times
    kinds = [event["kind"] for event in await history(ada, run_id)]
    assert kinds[-6:] == ["stop_heard", "stop_saved", "phase", "driver_ended", "gone", "status"]


async def test_the_next_run_starts_only_when_the_stopped_ones_processes_are_gone(api: Api) -> None:
    ada, run_id, driver = await running(api)
    second = await make_run(ada)
    await ada.post(f"/runs/{run_id}/stop")
    await send(driver, run_id, api.batch([ended("stopped")]))
    await api.turn()
    assert (await read_run(ada, second["id"]))["status"] == "queued"
    await observe(api, run_id, "stopped", boot_id=HERE)
    await api.turn()
    assert (await read_run(ada, second["id"]))["status"] == "starting"


@pytest.mark.parametrize("outcome", ["finished", "failed"])
async def test_a_run_that_ends_by_itself_has_ended_and_is_looked_after_until_it_is_gone(
    api: Api, outcome: str
) -> None:
    ada, run_id, driver = await running(api)
    await send(driver, run_id, api.batch([ended(outcome, "Because.")]))
    assert (await read_run(ada, run_id))["status"] == outcome
    assert await measure(api) == ["none"]
    api.clock.advance(10)
    assert await measure(api) == ["kill"]
    before = await read_run(ada, run_id)
    await observe(api, run_id, "succeeded", boot_id=HERE, num_processes=2)
    left = await read_run(ada, run_id)
    assert left["attempts"][0]["num_processes"] == 2
    assert left["cursor"] > before["cursor"]
    await observe(api, run_id, "succeeded", boot_id=HERE, num_processes=0, num_killed=2)
    assert await measure(api) == []
    run = await read_run(ada, run_id)
    assert run["status"] == outcome
    assert run["attempts"][0]["gone_at"]
    told = [(event["kind"], event["reason"]) for event in await history(ada, run_id)]
    assert told[-2] == ("killed", "Killed 2 processes that were left of it.")
    assert told[-1][0] == "gone"


async def test_a_run_whose_processes_are_left_is_not_deleted_under_them(api: Api) -> None:
    ada, run_id, driver = await running(api)
    await send(driver, run_id, api.batch([ended("failed", "No.")]))
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=1)
    answer = await ada.delete(f"/runs/{run_id}")
    assert answer.status_code == 409
    assert "still being ended" in answer.json()["detail"]
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=0)
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 200


async def test_a_stop_nobody_hears_is_escalated_and_ends_when_nothing_is_left(api: Api) -> None:
    ada, run_id, _ = await running(api)
    await ada.post(f"/runs/{run_id}/stop")
    measures = []
    for _ in range(4):
        measures += await measure(api)
        api.clock.advance(8)
    assert measures == ["ask", "ask", "ray_stop", "kill"]
    # The driver was heard a moment ago, but on the workers' own machine nothing is left of it.
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=0, num_killed=4)
    run = await read_run(ada, run_id)
    assert run["status"] == "stopped"
    assert run["reason"] == "Stopped on request; the driver left no end marker."


async def test_a_stop_that_saved_nothing_says_so(api: Api) -> None:
    ada, run_id, driver = await running(api)
    await ada.post(f"/runs/{run_id}/stop")
    await send(driver, run_id, api.batch([ended("stopped")]))
    await observe(api, run_id, "failed", boot_id=HERE)
    reason = (await read_run(ada, run_id))["reason"]
    assert reason == (
        "Stopped on request by ada. It saved no weights after that; earlier ones are safe."
    )


async def test_on_other_machines_rays_word_counts_once_the_driver_is_silent(api: Api) -> None:
    ada, run_id, driver = await running(api, ELSEWHERE)
    await ada.post(f"/runs/{run_id}/stop")
    await send(driver, run_id, api.batch([heartbeat(boot_id=ELSEWHERE)]))
    await observe(api, run_id, "failed", boot_id=HERE)
    assert (await read_run(ada, run_id))["status"] == "stopping"
    api.clock.advance(31)
    await observe(api, run_id, "failed", boot_id=HERE)
    assert (await read_run(ada, run_id))["status"] == "stopped"


async def test_a_run_that_is_heard_and_that_nobody_stopped_is_never_called_gone(api: Api) -> None:
    ada, run_id, _ = await running(api)
    await observe(api, run_id, "missing", boot_id=HERE, num_processes=0)
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"]) == ("running", "unknown_to_ray")
    assert run["attempts"][0]["gone_at"] is None


async def test_a_run_that_never_started_leaves_nothing_to_look_after(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    await ada.post(f"/runs/{run['id']}/stop")
    assert await measure(api) == []


async def test_what_could_not_be_submitted_is_gone_when_ray_does_not_know_it(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    path = f"/internal/attempts/{run_id}-a1/submit-failed"
    await api.workers.post(path, json={"reason": "No."})
    assert await measure(api) == ["none"]
    await observe(api, run_id, "missing")
    assert await measure(api) == []


async def test_a_submission_that_is_sent_again_is_not_taken_for_one_that_never_was(
    api: Api,
) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    api.clock.advance(121)
    async with api.context.database.session() as session:
        await remind(session, api.clock())
        await session.commit()
    stopping = (await ada.post(f"/runs/{run_id}/stop")).json()
    assert stopping["status"] == "stopping"  # its job may be on its way
    assert stopping["attempts"][0]["gone_at"] is None


async def test_a_driver_with_an_older_fencing_token_is_refused_and_stores_nothing(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    before = await read_run(ada, run_id)
    body = api.batch([heartbeat(fencing_token=1), phase("running", "I am still here.")])
    newer = await api.driver(f"{run_id}-a1")
    config = (await newer.get(f"/attempts/{run_id}-a1/config")).json()
    assert config["fencing_token"] == 2
    # One that took the newer credential from the file, and was started with the older token.
    problem = await send(newer, run_id, body, 409)
    assert problem["type"].endswith("fenced-out")
    assert "has taken over" in problem["detail"]
    # And one that still has its own.
    await send(driver, run_id, body, 401)
    assert await read_run(ada, run_id) == before


async def test_an_attempt_that_is_over_gives_its_config_to_nobody_and_its_driver_is_told(
    api: Api,
) -> None:
    _, run_id, driver = await running(api)
    await send(driver, run_id, api.batch([ended("failed", "No.")]))
    assert (await driver.get(f"/attempts/{run_id}-a1/config")).status_code == 409
    accepted = await send(driver, run_id, api.batch([heartbeat()]))
    assert accepted["stop_requested"] is True


async def test_a_run_without_progress_says_what_it_waits_for_and_recovers(api: Api) -> None:
    ada, run_id, driver = await running(api)
    still = {"activity": "starved", "idle_seconds": 125.0, "trajectories": 9}
    await send(driver, run_id, api.batch([heartbeat(**still)]))
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"]) == ("running", "stalled")
    attempt = run["attempts"][0]
    assert (attempt["activity"], attempt["idle_seconds"]) == ("starved", 125.0)
    assert attempt["trajectories"] == 9
    assert (await history(ada, run_id))[-1]["reason"].startswith(
        "No trajectory has finished and no step was done for 2 min: the loop is starved"
    )
    await send(driver, run_id, api.batch([heartbeat(**still | {"idle_seconds": 1.0})]))
    await api.turn()
    assert (await read_run(ada, run_id))["condition"] == ""


async def killed_and_waiting(api: Api) -> tuple[httpx.AsyncClient, str]:
    """A user, and a run of theirs that waits for its restart while its processes may be left."""
    ada, run_id, driver = await running(api)
    killed = {**ended("failed", "A generator died."), "is_transient": True}
    await send(driver, run_id, api.batch([killed]))
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=2)
    assert (await read_run(ada, run_id))["status"] == "queued"
    return ada, run_id


async def test_a_stop_before_a_restart_waits_for_the_processes_of_the_attempt_before(
    api: Api,
) -> None:
    ada, run_id = await killed_and_waiting(api)
    stopping = (await ada.post(f"/runs/{run_id}/stop")).json()
    assert stopping["status"] == "stopping"
    assert stopping["reason"] == (
        "Stop requested by ada. Processes of the attempt before are still being ended."
    )
    api.clock.advance(60)  # longer than a job that was never submitted is waited for
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "stopping"
    assert await measure(api) == ["kill", "kill"]
    assert api.queue.sent == [("workers.submit", [f"{run_id}-a1"])]
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=0, num_killed=2)
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["reason"]) == ("stopped", "Stopped by ada before it started again.")
    assert run["ended_at"] == run["attempts"][0]["gone_at"]
    assert await measure(api) == []


async def test_a_stop_before_a_restart_is_at_once_when_nothing_is_left(api: Api) -> None:
    ada, run_id = await killed_and_waiting(api)
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=0)
    stopped = (await ada.post(f"/runs/{run_id}/stop")).json()
    assert stopped["status"] == "stopped"


async def test_a_stop_of_a_later_attempt_waits_for_what_is_left_of_all(api: Api) -> None:
    api.nodes = [("n1", 2, 0), ("n2", 2, 0)]  # it starts again beside what is left of it
    ada, run_id = await killed_and_waiting(api)
    api.clock.advance(6)
    await api.turn()
    await api.driver(f"{run_id}-a2")
    stopping = (await ada.post(f"/runs/{run_id}/stop")).json()
    assert (stopping["status"], stopping["attempts"][1]["gone_at"]) == ("stopping", None)
    await api.gone(run_id, "missing", attempt=2)
    api.clock.advance(31)
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "stopping"
    await observe(api, run_id, "failed", boot_id=HERE, num_processes=0)
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "stopped"


async def test_a_stop_does_not_wait_for_an_attempt_that_never_had_a_process(api: Api) -> None:
    """Nobody may be there to see it gone."""
    ada = await api.user()
    run_id = (await make_run(ada))["id"]
    await api.turn()
    await ada.post(f"/runs/{run_id}/stop")
    api.clock.advance(31)
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["attempts"][0]["gone_at"]) == ("stopped", None)
    await ada.post(f"/runs/{run_id}/resume", json={})
    assert (await ada.post(f"/runs/{run_id}/stop")).json()["status"] == "stopped"
