"""What the workers see of Ray decides what becomes of a run, when it is evidence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.backend.api import START, Api, config, make_run, observe, phase, read_run, send


async def submitted(api: Api, run_id: str) -> None:
    body = {"submission_id": f"run-{run_id}-a1"}
    answer = await api.workers.post(f"/internal/attempts/{run_id}-a1/submitted", json=body)
    assert answer.status_code == 204, answer.text


async def test_the_workers_list_the_attempts_to_look_after(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await make_run(ada)
    await submitted(api, run_id)
    await ada.post(f"/runs/{run_id}/stop")
    listed = (await api.workers.get("/internal/attempts", params={"active": "true"})).json()
    assert listed["items"] == [
        {
            "id": f"{run_id}-a1",
            "run_id": run_id,
            "number": 1,
            "status": "stopping",
            "submission_id": f"run-{run_id}-a1",
            "measure": "ask",
            "boot_id": None,
        }
    ]
    everything = (await api.workers.get("/internal/attempts", params={"active": "false"})).json()
    assert len(everything["items"]) == 2


@pytest.mark.parametrize("status", ["pending", "running", "unreachable"])
async def test_a_job_that_may_still_run_decides_nothing(api: Api, status: str) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await submitted(api, run_id)
    api.clock.advance(600)
    await observe(api, run_id, status)
    assert (await read_run(ada, run_id))["status"] == "starting"


@pytest.mark.parametrize("status", ["succeeded", "failed"])
@pytest.mark.parametrize("stop", [False, True])
async def test_a_job_that_ended_without_marker_ends_the_run(
    api: Api, status: str, stop: bool
) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await submitted(api, run_id)
    if stop:
        await ada.post(f"/runs/{run_id}/stop")
    await observe(api, run_id, status, "exit code 137")
    run = await read_run(ada, run_id)
    assert run["status"] == ("stopped" if stop else "failed")
    assert ("exit code 137" in run["reason"]) == (not stop)
    history = (await ada.get(f"/runs/{run_id}/events")).json()["items"]
    assert history[-1]["by"] == "reconciler"
    assert history[-1]["reason"] == run["reason"]
    await observe(api, run_id, status)
    assert len((await ada.get(f"/runs/{run_id}/events")).json()["items"]) == len(history)


async def test_a_missing_job_is_no_evidence_before_it_was_submitted_for_a_while(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    api.clock.advance(100)
    await observe(api, run_id, "missing")
    assert (await read_run(ada, run_id))["status"] == "starting"
    await submitted(api, run_id)
    api.clock.advance(15)
    await observe(api, run_id, "missing")
    assert (await read_run(ada, run_id))["status"] == "starting"
    api.clock.advance(1)
    await observe(api, run_id, "missing")
    run = await read_run(ada, run_id)
    assert run["status"] == "failed"
    assert "no longer knows" in run["reason"]


async def test_a_job_that_was_stopped_from_outside_ends_the_run_as_stopped(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await submitted(api, run_id)
    await observe(api, run_id, "stopped")
    run = await read_run(ada, run_id)
    assert run["status"] == "stopped"
    assert run["reason"] == "Its Ray job was stopped from outside Lagoon."


async def heard(api: Api, max_restarts: int = 0) -> tuple[Any, str, Any]:
    """A user, and a running run with its driver, which was heard just now."""
    ada = await api.user()
    run_id, driver = await api.started(ada, config=config(budget={"max_restarts": max_restarts}))
    await submitted(api, run_id)
    api.clock.advance(100)
    await send(driver, run_id, api.batch([phase("running")]))
    return ada, run_id, driver


async def test_a_run_whose_driver_is_heard_is_not_lost_with_ray(api: Api) -> None:
    ada, run_id, _ = await heard(api)
    api.clock.advance(29)
    await observe(api, run_id, "missing")
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"]) == ("running", "unknown_to_ray")
    api.clock.advance(1)
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"]) == ("failed", "")


@pytest.mark.parametrize("seen", ["running", "unreachable"])
async def test_a_silent_driver_is_unresponsive_then_lost_and_never_failed(
    api: Api, seen: str
) -> None:
    ada, run_id, driver = await heard(api)
    conditions = []
    for silence in (29, 30, 299, 300, 86_400):
        api.clock.now = START + timedelta(seconds=100 + silence)
        await observe(api, run_id, seen)
        run = await read_run(ada, run_id)
        conditions.append((run["status"], run["condition"]))
    assert conditions == [
        ("running", ""),
        ("running", "unresponsive"),
        ("running", "unresponsive"),
        ("running", "lost"),
        ("running", "lost"),
    ]
    await send(driver, run_id, api.batch([phase("running")]))
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"], run["condition_since"]) == ("running", "", None)
    history = (await ada.get(f"/runs/{run_id}/events")).json()["items"]
    told = [event["reason"] for event in history if event["kind"] == "condition"]
    assert [words.split(";")[0].split(".")[0] for words in told] == [
        "Its driver is silent",
        "Its driver has been silent for minutes",
        "Its driver is heard, and Ray agrees",
    ]


async def test_an_old_look_at_ray_is_no_evidence(api: Api) -> None:
    ada, run_id, _ = await heard(api)
    await observe(api, run_id, "failed")
    api.clock.advance(61)
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["condition"]) == ("running", "unresponsive")


async def test_a_silence_in_which_no_api_listened_counts_against_nobody(api: Api) -> None:
    ada, run_id, _ = await heard(api)
    api.clock.advance(3600)
    api.context.listening_since = api.clock()
    await observe(api, run_id, "running")
    assert (await read_run(ada, run_id))["condition"] == ""
    api.clock.advance(30)
    await api.turn()
    assert (await read_run(ada, run_id))["condition"] == "unresponsive"


async def test_after_the_clock_was_set_back_a_silence_counts_from_then_on(api: Api) -> None:
    ada, run_id, _ = await heard(api, max_restarts=1)
    api.clock.advance(-3600)
    await api.turn()
    assert (await read_run(ada, run_id))["condition"] == ""
    api.clock.advance(30)
    await api.turn()
    assert (await read_run(ada, run_id))["condition"] == "unresponsive"
    await observe(api, run_id, "failed")
    await api.turn()
    run = await read_run(ada, run_id)
    assert (run["status"], run["num_attempts"]) == ("queued", 2)
    api.clock.advance(-3600)  # the pause before the restart does not become an hour longer
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "starting"


async def test_a_clock_that_was_set_back_delays_no_message_and_no_end(api: Api) -> None:
    ada = await api.user()
    run_id = (await make_run(ada, config=config(budget={"max_restarts": 0})))["id"]
    await api.turn()
    api.clock.advance(-3600)
    await api.turn()  # nobody has taken the message: the broker may have lost it
    assert api.queue.sent == [("workers.submit", [f"{run_id}-a1"])] * 2
    await api.driver(f"{run_id}-a1")
    await submitted(api, run_id)
    api.clock.advance(-3600)
    await api.turn()
    api.clock.advance(16)  # Ray had its time to know the job
    await observe(api, run_id, "missing", num_processes=1)
    assert (await read_run(ada, run_id))["status"] == "failed"
    api.clock.advance(-3600)
    listed = (await api.workers.get("/internal/attempts")).json()["items"]
    assert [item["measure"] for item in listed] == ["kill"]


async def test_a_stop_before_the_submission_ends_without_a_job(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await ada.post(f"/runs/{run_id}/stop")
    answer = await api.workers.post(f"/internal/attempts/{run_id}-a1/token")
    assert answer.status_code == 409
    await observe(api, run_id, "missing")
    await api.turn()
    assert (await read_run(ada, run_id))["status"] == "stopping"
    api.clock.advance(31)
    await api.turn()
    run = await read_run(ada, run_id)
    assert run["status"] == "stopped"
    assert run["reason"] == "Stopped by ada before its job was submitted."
    history = (await ada.get(f"/runs/{run_id}/events")).json()["items"]
    await submitted(api, run_id)  # the workers' word comes too late
    assert (await ada.get(f"/runs/{run_id}/events")).json()["items"] == history
    assert (await driver.get(f"/attempts/{run_id}-a1/config")).status_code == 401


async def test_a_long_report_of_ray_is_cut_to_a_sentence_and_kept_beside_it(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    await observe(api, run_id, "failed", "The job died.\nTraceback …\n" + "x" * 200_000 + "\0")
    run = await read_run(ada, run_id)
    assert run["reason"].endswith("Ray says: The job died.")
    assert run["traceback"].endswith("x␀")


async def test_a_driver_that_was_killed_is_said_to_have_been(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    said = "Job entrypoint command failed with exit code 137, last available logs (truncated):\n…"
    await observe(api, run_id, "failed", said)
    run = await read_run(ada, run_id)
    assert run["reason"].endswith(
        "Ray says: Job entrypoint command failed with exit code 137 (killed: by somebody, or "
        "because its machine was out of memory)."
    )
    assert run["traceback"] == said


async def test_a_submission_that_fails_ends_the_run_with_its_cause(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada, config=config(budget={"max_restarts": 0}))
    body = {"reason": "The folder has no tokenizer.", "traceback": "Traceback …"}
    path = f"/internal/attempts/{run_id}-a1/submit-failed"
    assert (await api.workers.post(path, json=body)).status_code == 204
    run = await read_run(ada, run_id)
    assert run["status"] == "failed"
    assert run["reason"] == "The folder has no tokenizer."
    assert run["traceback"] == "Traceback …"
    assert (await api.workers.post(path, json={"reason": "Again."})).status_code == 204
    assert (await read_run(ada, run_id))["reason"] == "The folder has no tokenizer."


async def test_an_observation_of_an_unknown_attempt_is_passed_over(api: Api) -> None:
    await observe(api, "r0000000", "failed")
    body = {"ray": "ok", "jobs": [{"attempt_id": "x", "ray_status": "asleep"}]}
    assert (await api.workers.post("/internal/observations", json=body)).status_code == 422
