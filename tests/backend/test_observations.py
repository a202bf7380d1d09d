"""What the workers see of Ray decides what becomes of a run, when it is evidence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backend.api import Api, make_run, phase, read_run, send


async def observe(api: Api, run_id: str, status: str, message: str | None = None) -> None:
    body: dict[str, Any] = {
        "ray": "ok",
        "cluster": {"cpus": 2, "gpus": 0},
        "jobs": [{"attempt_id": f"{run_id}-a1", "ray_status": status, "message": message}],
    }
    answer = await api.workers.post("/internal/observations", json=body)
    assert answer.status_code == 204, answer.text


async def submitted(api: Api, run_id: str) -> None:
    body = {"submission_id": f"run-{run_id}-a1"}
    answer = await api.workers.post(f"/internal/attempts/{run_id}-a1/submitted", json=body)
    assert answer.status_code == 204, answer.text


async def test_the_workers_list_the_attempts_to_look_after(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
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
            "stop_requested": True,
            "submission_id": f"run-{run_id}-a1",
        }
    ]
    everything = (await api.workers.get("/internal/attempts", params={"active": "false"})).json()
    assert len(everything["items"]) == 2


@pytest.mark.parametrize("status", ["pending", "running", "unreachable"])
async def test_a_job_that_may_still_run_decides_nothing(api: Api, status: str) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    await submitted(api, run_id)
    api.clock.advance(600)
    await observe(api, run_id, status)
    assert (await read_run(ada, run_id))["status"] == "starting"


@pytest.mark.parametrize("status", ["succeeded", "failed", "stopped"])
@pytest.mark.parametrize("stop", [False, True])
async def test_a_job_that_ended_without_marker_ends_the_run(
    api: Api, status: str, stop: bool
) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    await submitted(api, run_id)
    if stop:
        await ada.post(f"/runs/{run_id}/stop")
    await observe(api, run_id, status, "exit code 137")
    run = await read_run(ada, run_id)
    assert run["status"] == ("stopped" if stop else "failed")
    assert ("exit code 137" in run["reason"]) == (not stop)
    history = (await ada.get(f"/runs/{run_id}/events")).json()["items"]
    assert history[-1]["by"] == "observation"
    await observe(api, run_id, status)
    assert len((await ada.get(f"/runs/{run_id}/events")).json()["items"]) == len(history)


async def test_a_missing_job_is_no_evidence_before_it_was_submitted_for_a_while(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
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


async def test_a_run_whose_driver_is_heard_is_not_lost_with_ray(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await submitted(api, run_id)
    api.clock.advance(100)
    await send(driver, run_id, api.batch([phase("running")]))
    api.clock.advance(14)
    await observe(api, run_id, "missing")
    assert (await read_run(ada, run_id))["status"] == "running"
    api.clock.advance(2)
    await observe(api, run_id, "missing")
    assert (await read_run(ada, run_id))["status"] == "failed"


async def test_a_stop_before_the_submission_ends_without_a_job(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
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
    assert (await driver.get(f"/attempts/{run_id}-a1/config")).status_code == 401


async def test_a_long_report_of_ray_is_cut_to_a_sentence_and_kept_beside_it(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
    await observe(api, run_id, "failed", "The job died.\nTraceback …\n" + "x" * 200_000 + "\0")
    run = await read_run(ada, run_id)
    assert run["reason"].endswith("Ray says: The job died.")
    assert run["traceback"].endswith("x␀")


async def test_a_submission_that_fails_ends_the_run_with_its_cause(api: Api) -> None:
    ada = await api.user()
    run_id, _ = await api.started(ada)
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
