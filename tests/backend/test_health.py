"""Health says in words which part is missing, to everyone, without secrets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.backend.api import Api


async def readiness(api: Api) -> httpx.Response:
    return await api.client().get("http://api.test/readyz")


async def observe(api: Api, **body: Any) -> None:
    answer = await api.workers.post("/internal/observations", json=body)
    assert answer.status_code == 204


async def test_everything_is_ready_after_a_fresh_observation(api: Api) -> None:
    await observe(api, ray="ok", cluster={"cpus": 2, "gpus": 0})
    answer = await readiness(api)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert all(check["ok"] for check in answer.json()["checks"].values())


async def down(api: Api) -> set[str]:
    answer = await readiness(api)
    assert answer.status_code == 503
    checks = answer.json()["checks"]
    assert set(checks) == {"postgres", "broker", "ray", "worker"}
    assert all(check["detail"] for check in checks.values())
    assert "hidden" not in answer.text
    return {name for name, check in checks.items() if not check["ok"]}


async def test_workers_that_do_not_report_are_named(api: Api) -> None:
    assert await down(api) == {"ray", "worker"}
    await observe(api, ray="ok")
    api.clock.advance(31)
    assert await down(api) == {"ray", "worker"}


async def test_ray_that_does_not_answer_is_named(api: Api) -> None:
    await observe(api, ray="unreachable", cluster=None)
    assert await down(api) == {"ray"}


async def test_a_broker_that_does_not_answer_is_named(api: Api) -> None:
    await observe(api, ray="ok")
    api.queue.is_away = True
    assert await down(api) == {"broker"}


@pytest.fixture
def unreachable_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"postgresql+psycopg://u:hidden@/db?host={tmp_path_factory.mktemp('nothing')}"


async def test_postgres_that_does_not_answer_is_named(api: Api, unreachable_url: str) -> None:
    cut_off = Api(unreachable_url, api.settings.home)
    try:
        assert await down(cut_off) == {"postgres", "ray", "worker"}
        answer = await cut_off.client("lgn_s1234567.x").get("/runs")
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert "Nothing of this request was stored" in answer.json()["detail"]
        assert "hidden" not in answer.text
    finally:
        await cut_off.close()


async def test_an_unreachable_cluster_has_not_shrunk(api: Api) -> None:
    ada = await api.user()
    await observe(api, ray="ok", cluster={"cpus": 2, "gpus": 0})
    await observe(api, ray="unreachable", cluster=None)
    config = {
        "environment": {"name": "sudoku4"},
        "method": {"name": "es"},
        "rollout": {"num_generators": 3},
    }
    answer = await ada.post("/runs/validate", json={"config": config})
    assert answer.status_code == 422
    assert "the cluster has 2" in answer.json()["detail"]


async def test_liveness_and_version_need_nothing(api: Api) -> None:
    assert (await api.client().get("http://api.test/livez")).json() == {"status": "ok"}
    version = (await api.client().get("http://api.test/version")).json()
    assert version["api"] == "v1"
    assert version["version"]
