"""Nothing is answered without credentials, and nobody sees what is not theirs."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from tests.backend.api import Api, config, heartbeat, make_run, send, step

PUBLIC = {
    ("POST", "/api/v1/session"),
    ("POST", "/api/v1/session/tickets"),
    ("GET", "/api/v1/signin"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/version"),
}


def routes(api: Api) -> set[tuple[str, str]]:
    """Every route of the application, also those of routers that are included lazily."""
    found: set[tuple[str, str]] = set()
    for path, methods in api.app.openapi()["paths"].items():
        found |= {(method.upper(), path) for method in methods}
    listed = {
        (method, route.path)
        for route in api.app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    return found | listed


async def test_every_route_that_is_not_public_answers_401_without_credentials(api: Api) -> None:
    found = routes(api)
    assert found >= PUBLIC
    assert len(found) > 30
    async with api.client() as nobody:
        for method, path in sorted(found - PUBLIC):
            url = "http://api.test" + path.replace("{", "").replace("}", "")
            answer = await nobody.request(method, url)
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "token",
    ["", "nonsense", "lgn_s1234567.wrong", "lgk_k1234567.x", "lga_r1234567-a1.x", "lgs_service.x"],
)
async def test_a_token_that_is_not_ours_answers_401(api: Api, token: str) -> None:
    answer = await api.client(token).get("/me")
    assert answer.status_code == 401


async def test_another_users_run_looks_like_no_run_at_all(api: Api) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    run = await make_run(ada)
    for method, path in (
        ("GET", ""),
        ("POST", "/stop"),
        ("DELETE", ""),
        ("GET", "/series"),
        ("GET", "/metrics?name=reward/mean"),
        ("GET", "/histograms?name=staleness/total_tokens"),
        ("GET", "/trajectories"),
        ("GET", "/log"),
        ("GET", "/events"),
    ):
        theirs = await bob.request(method, f"/runs/{run['id']}{path}")
        unknown = await bob.request(method, f"/runs/r0000000{path}")
        assert theirs.status_code == unknown.status_code == 404, path
        assert theirs.json()["detail"].replace(run["id"], "") == unknown.json()["detail"].replace(
            "r0000000", ""
        )
    experiment = f"/experiments/{run['experiment_id']}"
    assert (await bob.get(experiment)).status_code == 404
    assert (await bob.patch(experiment, json={"title": "mine"})).status_code == 404
    assert (await bob.delete(experiment)).status_code == 404
    body = {"name": "intruder", "config": config(), "experiment_id": run["experiment_id"]}
    assert (await bob.post("/runs", json=body)).status_code == 404
    assert (await bob.get("/runs")).json()["items"] == []
    assert (await bob.get("/experiments")).json()["items"] == []
    assert (await ada.get(f"/runs/{run['id']}")).status_code == 200


async def test_an_admin_sees_everyones_runs(api: Api) -> None:
    ada, root = await api.user("ada"), await api.user("root", "admin")
    run = await make_run(ada)
    assert (await root.get(f"/runs/{run['id']}")).json()["owner"] == "ada"
    assert [each["id"] for each in (await root.get("/runs")).json()["items"]] == [run["id"]]


async def test_only_admins_manage_accounts(api: Api) -> None:
    ada, root = await api.user("ada"), await api.user("root", "admin")
    body = {"username": "cy", "password": "long enough", "role": "member"}
    assert (await ada.post("/users", json=body)).status_code == 403
    assert (await ada.get("/users")).status_code == 403
    assert (await root.post("/users", json=body)).status_code == 201
    taken = await root.post("/users", json=body)
    assert taken.status_code == 422
    assert taken.json()["errors"][0]["fields"] == ["username"]
    names = [user["username"] for user in (await root.get("/users")).json()["items"]]
    assert names == ["ada", "cy", "root"]


async def test_people_do_not_reach_the_workers_endpoints_nor_the_workers_theirs(api: Api) -> None:
    root = await api.user("root", "admin")
    assert (await root.get("/internal/attempts")).status_code == 403
    assert (await root.post("/internal/observations", json={"ray": "ok"})).status_code == 403
    assert (await api.workers.get("/internal/attempts")).status_code == 200
    assert (await api.workers.get("/runs")).status_code == 403
    assert (await api.workers.post("/session/tickets")).status_code == 403
    assert (await api.workers.get("/me")).json()["role"] == "service"


async def test_an_attempt_token_reaches_its_own_attempt_and_nothing_else(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    other = (await make_run(ada))["id"]
    assert (await driver.get(f"/attempts/{run_id}-a1/config")).status_code == 200
    assert (await driver.get(f"/attempts/{other}-a1/config")).status_code == 404
    answer = await driver.post(f"/attempts/{other}-a1/events", json=api.batch([step(1)]))
    assert answer.status_code == 404
    for path in (f"/runs/{run_id}", "/runs", "/internal/attempts", "/users", "/catalogue"):
        assert (await driver.get(path)).status_code == 403, path
    for method, path in (
        ("GET", "/me"),
        ("GET", "/runs"),
        ("GET", "/api-keys"),
        ("DELETE", "/session"),
        ("POST", "/session/tickets"),
    ):
        answer = await driver.request(method, path)
        assert answer.status_code == 403, path
        assert "belongs to a run's driver" in answer.json()["detail"], path
    assert (await ada.get(f"/attempts/{run_id}-a1/config")).status_code == 403


async def test_an_attempt_whose_driver_was_heard_is_not_handed_to_another(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([heartbeat()]))
    answer = await api.workers.post(f"/internal/attempts/{run_id}-a1/token")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("already-started")
    await send(driver, run_id, api.batch([heartbeat(step=1)]))  # it is the attempt's still


async def test_a_new_attempt_token_fences_the_old_one_off(api: Api) -> None:
    ada = await api.user()
    run_id, old = await api.started(ada)
    new = await api.driver(f"{run_id}-a1")
    answer = await old.post(f"/attempts/{run_id}-a1/events", json=api.batch([step(1)], number=1))
    assert answer.status_code == 401
    config = (await new.get(f"/attempts/{run_id}-a1/config")).json()
    assert config["fencing_token"] == 2
    await send(new, run_id, api.batch([step(1, reward__mean=2.0)], number=1))


async def test_no_driver_token_is_minted_for_a_run_that_is_not_active(api: Api) -> None:
    ada = await api.user()
    run = await make_run(ada)
    answer = await api.workers.post(f"/internal/attempts/{run['id']}-a1/token")
    assert answer.status_code == 409
    assert (await api.workers.post("/internal/attempts/r0000000-a1/token")).status_code == 404
