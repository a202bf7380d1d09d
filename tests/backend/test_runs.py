"""Runs are checked, created once, listed, read, and deleted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import text

from tests.backend.api import Api, config, make_run, read_run, send, step


async def errors_of(api: Api, changes: dict[str, Any]) -> list[dict[str, Any]]:
    ada = await api.user()
    bodies = {"/runs/validate": {}, "/runs": {"name": "a run"}}
    answers = [
        await ada.post(path, json={**body, "config": config(**changes)})
        for path, body in bodies.items()
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["errors"] == answers[1].json()["errors"]
    assert (await ada.get("/runs")).json()["items"] == []
    errors: list[dict[str, Any]] = answers[0].json()["errors"]
    return errors


async def test_an_unknown_key_is_refused_with_the_nearest_valid_name(api: Api) -> None:
    [error] = await errors_of(api, {"method": {"name": "grpo", "group_sise": 4}})
    assert error["fields"] == ["method.group_sise"]
    assert error["hint"] == "method.group_size"
    assert "group_size" in error["message"]


async def test_clashing_fields_are_both_named(api: Api) -> None:
    [error] = await errors_of(
        api,
        {
            "method": {"name": "es"},
            "trainer": {"learning_rate_schedule": "cosine"},
        },
    )
    assert error["fields"] == ["trainer.learning_rate_schedule", "method.name"]
    assert "no effect" in error["message"]


async def test_too_few_turns_for_the_environment_name_both_fields(api: Api) -> None:
    [error] = await errors_of(api, {"environment": {"name": "calculator", "num_operations": 7}})
    assert error["fields"] == ["environment.max_turns", "environment.num_operations"]
    assert error["message"].startswith("max_turns 6 is too short")


async def test_a_group_of_one_is_refused_for_grpo(api: Api) -> None:
    [error] = await errors_of(api, {"method": {"name": "grpo", "group_size": 1}})
    assert error["fields"] == ["method.group_size", "method.name"]


async def test_what_asynchronous_training_cannot_honour_is_refused_at_the_fields(api: Api) -> None:
    small = {"kv_cache_gib": 0.01}
    cases: list[tuple[dict[str, Any], list[str]]] = [
        (
            {"method": {"name": "async_grpo", "max_staleness": 2, "correction": "none"}},
            ["method.max_staleness", "method.correction"],
        ),
        (
            {"method": {"name": "pace", "num_prompts": 8, "target": 7}},
            ["method.target", "method.num_prompts"],
        ),
        (
            {"method": {"name": "async_grpo", "critic_warmup_steps": 3}},
            ["method.critic_warmup_steps", "method.name"],
        ),
        ({"method": {"name": "pace", "gamma": -1}}, ["method.gamma"]),
        (
            {"method": {"name": "pace"}, "rollout": small},
            ["rollout.max_concurrent", "rollout.kv_cache_gib", "model.max_length_tokens"],
        ),
    ]
    ada = await api.user()
    for changes, fields in cases:
        answer = await ada.post("/runs/validate", json={"config": config(**changes)})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error["fields"] == fields
        assert error["message"]
        assert error["hint"] is None


async def test_more_gpus_than_the_cluster_has_are_refused(api: Api) -> None:
    body = {"ray": "ok", "cluster": {"cpus": 8, "gpus": 1}, "jobs": []}
    assert (await api.workers.post("/internal/observations", json=body)).status_code == 204
    [error] = await errors_of(api, {"resources": {"gpus_per_generator": 2}})
    assert error["fields"] == ["rollout.num_generators", "resources.gpus_per_generator"]
    assert "the cluster has 1" in error["message"]


@pytest.mark.parametrize(
    "odd",
    [
        '{"x": NaN}',
        '{"x": 1e999}',
        '{"x": "\\u0000"}',
        '{"\\u0000": 1}',
        '"\\ud800"',
        "[" * 300 + "]" * 300,
        '{"\\ud800": 1}',
    ],
)
async def test_what_cannot_be_stored_is_refused(api: Api, odd: str) -> None:
    ada = await api.user()
    template = json.dumps(config(environment={"name": "reasoning_gym", "dataset_options": "ODD"}))
    body = '{"name": "a run", "config": ' + template.replace('"ODD"', odd) + "}"
    answer = await ada.post(
        "/runs", content=body.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_resolved_configuration_is_stored_whole(api: Api) -> None:
    ada = await api.user()
    resolved = (await ada.post("/runs/validate", json={"config": config()})).json()["config"]
    run = await make_run(ada)
    assert run["config"] == resolved
    assert resolved["method"]["group_size"] == 8
    assert resolved["rollout"]["temperature"] == 1.0
    again = await make_run(ada, config=run["config"])
    assert again["config"] == resolved


async def test_names_are_unicode_in_one_normal_form(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada, name="  泻湖 café\u0301 🦩 ")
    assert run["name"] == "泻湖 caf\u00e9\u0301 🦩"
    for bad in ("", "   ", "a\nb", "a\0b", "x" * 201):
        answer = await ada.post("/runs", json={"name": bad, "config": config()})
        assert answer.status_code == 422, repr(bad)
        assert answer.json()["errors"][0]["fields"] == ["name"]


async def test_the_same_idempotency_key_makes_one_run(api: Api) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    body = {"name": "once", "config": config()}
    key = {"Idempotency-Key": "form-1"}
    answers = await asyncio.gather(*(ada.post("/runs", json=body, headers=key) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len((await ada.get("/runs")).json()["items"]) == 1
    other = await ada.post("/runs", json={**body, "name": "twice"}, headers=key)
    assert other.status_code == 422
    assert other.json()["errors"][0]["fields"] == ["Idempotency-Key"]
    assert (await bob.post("/runs", json=body, headers=key)).status_code == 201
    api.clock.advance(25 * 3600)
    assert (await ada.post("/runs", json=body, headers=key)).status_code == 201
    assert len((await ada.get("/runs")).json()["items"]) == 2


async def test_the_same_idempotency_key_makes_one_experiment(api: Api) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    body, key = {"title": "Demo", "notes": "*n*"}, {"Idempotency-Key": "demo"}
    sent = (ada.post("/experiments", json=body, headers=key) for _ in range(4))
    answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len((await ada.get("/experiments")).json()["items"]) == 1
    other = await ada.post("/experiments", json={**body, "title": "Other"}, headers=key)
    assert other.json()["errors"][0]["fields"] == ["Idempotency-Key"]
    run = await ada.post("/runs", json={"name": "a run", "config": config()}, headers=key)
    assert run.status_code == 422
    assert (await bob.post("/experiments", json=body, headers=key)).status_code == 201
    id = answers[0].json()["id"]
    assert (await ada.delete(f"/experiments/{id}")).status_code == 200
    again = await ada.post("/experiments", json=body, headers=key)
    assert again.json()["id"] != id


async def test_a_refused_request_leaves_its_idempotency_key_free(api: Api) -> None:
    ada = await api.user()
    key = {"Idempotency-Key": "form-1"}
    bad = {"name": "a run", "config": config(seed=-1)}
    assert (await ada.post("/runs", json=bad, headers=key)).status_code == 422
    good = {"name": "a run", "config": config()}
    assert (await ada.post("/runs", json=good, headers=key)).status_code == 201


async def test_runs_are_listed_newest_first_page_by_page(api: Api) -> None:
    ada = await api.user()
    made = []
    for number in range(5):
        made.append((await make_run(ada, name=f"run {number}"))["id"])
        api.clock.advance(number % 2)  # some are made at the same moment
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await ada.get("/runs", params={"limit": 2, **cursor})).json()
        seen += [run["id"] for run in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert sorted(seen) == sorted(made)
    assert seen[0] == made[-1]
    bad = await ada.get("/runs", params={"cursor": "bm9uc2Vuc2U="})
    assert bad.status_code == 422
    assert (await ada.get("/runs", params={"limit": 201})).status_code == 422


async def test_runs_are_found_by_experiment_and_by_status(api: Api) -> None:
    ada = await api.user()
    experiment = (await ada.post("/experiments", json={"title": "seeds"})).json()["id"]
    inside = await make_run(ada, experiment_id=experiment)
    outside = await make_run(ada)
    await ada.post(f"/runs/{outside['id']}/stop")
    found = await ada.get("/runs", params={"experiment_id": experiment})
    assert [run["id"] for run in found.json()["items"]] == [inside["id"]]
    found = await ada.get("/runs", params={"status": "stopped"})
    assert [run["id"] for run in found.json()["items"]] == [outside["id"]]
    assert (await ada.get("/runs", params={"status": "asleep"})).status_code == 422


async def test_an_unchanged_run_answers_304_and_a_changed_one_its_news(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    tag = (await ada.get(f"/runs/{run_id}")).headers["etag"]
    known = {"If-None-Match": tag}
    answer = await ada.get(f"/runs/{run_id}", headers=known)
    assert answer.status_code == 304
    assert answer.content == b""
    await send(driver, run_id, api.batch([step(1, reward__mean=1.0)]))
    answer = await ada.get(f"/runs/{run_id}", headers=known)
    assert answer.status_code == 200
    assert answer.headers["etag"] != tag
    assert answer.json()["step"] == 1


async def test_a_deleted_run_takes_its_data_with_it(api: Api, postgres_url: str) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    histogram = {
        "type": "histogram",
        "at": 1.9e9,
        "step": 1,
        "name": "staleness/total_tokens",
        "counts": {"0": 3},
    }
    await send(driver, run_id, api.batch([step(1, reward__mean=1.0), histogram]))
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 409
    await ada.post(f"/runs/{run_id}/stop")
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 409
    body = {"reason": "no such model", "traceback": "Traceback …"}
    await api.workers.post(f"/internal/attempts/{run_id}-a1/submit-failed", json=body)
    await api.gone(run_id, "missing")
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 200
    assert (await ada.get(f"/runs/{run_id}")).status_code == 404
    async with api.context.database.session() as session:
        connection = await session.connection()
        for table in ("metric_points", "histograms", "metric_series", "outbox", "run_events"):
            count = await connection.exec_driver_sql(f"select count(*) from {table}")
            assert count.scalar_one() == 0, table


async def test_an_experiment_is_changed_and_deleted_with_its_runs(api: Api) -> None:
    ada = await api.user()
    experiment = (await ada.post("/experiments", json={"title": "seeds"})).json()
    assert experiment["num_runs"] == 0
    path = f"/experiments/{experiment['id']}"
    run = await make_run(ada, experiment_id=experiment["id"])
    changed = (await ada.patch(path, json={"notes": "# Why\n\nTo see."})).json()
    assert changed == {**experiment, "notes": "# Why\n\nTo see.", "num_runs": 1}
    shown = (await ada.get(path)).json()
    assert [each["id"] for each in shown["runs"]] == [run["id"]]
    await api.turn()
    assert (await ada.delete(path)).status_code == 409
    await ada.post(f"/runs/{run['id']}/stop")
    body = {"reason": "no Ray"}
    await api.workers.post(f"/internal/attempts/{run['id']}-a1/submit-failed", json=body)
    assert (await ada.delete(path)).status_code == 200
    assert (await ada.get(path)).status_code == 404
    assert (await ada.get(f"/runs/{run['id']}")).status_code == 404


async def test_experiments_are_listed_newest_first_page_by_page(api: Api) -> None:
    ada = await api.user()
    for number in range(3):
        await ada.post("/experiments", json={"title": f"experiment {number}"})
        api.clock.advance(1)
    first = (await ada.get("/experiments", params={"limit": 2})).json()
    second = (await ada.get("/experiments", params={"limit": 2, "cursor": first["next"]})).json()
    titles = [each["title"] for each in first["items"] + second["items"]]
    assert titles == ["experiment 2", "experiment 1", "experiment 0"]
    assert second["next"] is None


async def test_a_run_without_experiment_goes_to_the_default_one(api: Api) -> None:
    ada = await api.user()
    first, second = await asyncio.gather(make_run(ada), make_run(ada))
    assert first["experiment_id"] == second["experiment_id"]
    [experiment] = (await ada.get("/experiments")).json()["items"]
    assert experiment["title"] == "Default"
    assert experiment["num_runs"] == 2
    assert (await read_run(ada, first["id"]))["num_attempts"] == 1


async def test_a_run_for_an_experiment_deleted_meanwhile_is_refused_whole(api: Api) -> None:
    ada = await api.user()
    experiment = (await ada.post("/experiments", json={"title": "seeds"})).json()["id"]
    body = {"name": "late", "config": config(), "experiment_id": experiment}
    async with api.context.database.session() as session:
        connection = await session.connection()
        await connection.exec_driver_sql("delete from experiments")
        request = asyncio.create_task(ada.post("/runs", json=body))
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        async with asyncio.timeout(30), api.context.database.session() as other:
            while not (await other.execute(text(waiting))).scalar_one():
                await other.commit()  # the statistics are a snapshot of the transaction
                await asyncio.sleep(0.01)  # the request's own wait is what is waited for
        await session.commit()
    answer = await request
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await ada.get("/runs")).json()["items"] == []
