"""Events are stored exactly once, whole or not at all."""

from __future__ import annotations

from tests.backend.api import Api, ended, phase, read_run, send, step


async def test_a_run_is_created_started_reported_on_and_read(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada, name="première 泻湖")
    assert api.queue.sent == [("workers.submit", [f"{run_id}-a1"])]

    config = (await driver.get(f"/attempts/{run_id}-a1/config")).json()
    assert config["config"]["method"]["name"] == "grpo"
    assert config["fencing_token"] == 1

    batch = api.batch(
        [
            phase("running"),
            step(1, reward__mean=0.25, heldout__success=0.1),
            step(2, reward__mean="NaN"),
        ]
    )
    assert await send(driver, run_id, batch) == {"accepted_number": 1, "stop_requested": False}
    run = await read_run(ada, run_id)
    assert run["status"] == "running"
    assert run["first_heldout_success"] == 0.1
    assert run["last_reward"] == "NaN"
    assert run["first_nan"] == {"name": "reward/mean", "step": 2}

    read = await ada.get(f"/runs/{run_id}/metrics", params={"name": ["reward/mean"]})
    [series] = read.json()["series"]
    assert series["points"]["value"] == [0.25, "NaN"]
    assert series["nan_steps"] == [2]
    assert series["method"] == "all"

    await send(driver, run_id, api.batch([ended("finished", "All steps done.")]))
    assert (await read_run(ada, run_id))["status"] == "finished"
