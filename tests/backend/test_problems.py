"""Every error is a problem in the same form, and none shows what is inside."""

from __future__ import annotations

import logging

import httpx
import pytest

from tests.backend.api import Api, config


def check(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].startswith("urn:lagoon:problem:")
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"].startswith("/")
    assert problem["request_id"] == answer.headers["x-request-id"]


async def test_an_unknown_path_is_a_problem(api: Api) -> None:
    check(await api.client().get("/nothing/here"), 404)
    check(await api.client().get("http://api.test/docs"), 404)


async def test_a_method_that_a_path_does_not_have_is_a_problem(api: Api) -> None:
    answer = await api.client().put("/runs")
    check(answer, 405)
    assert answer.headers["allow"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b"[" * 100_000])
async def test_a_body_that_is_not_what_was_asked_for_is_a_problem(api: Api, body: bytes) -> None:
    ada = await api.user()
    answer = await ada.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    check(answer, answer.status_code)


async def test_a_missing_field_is_named_without_the_part_of_the_request(api: Api) -> None:
    ada = await api.user()
    answer = await ada.post("/runs", json={"config": config(), "colour": "green"})
    check(answer, 422)
    fields = [error["fields"] for error in answer.json()["errors"]]
    assert fields == [["name"], ["colour"]]


async def test_an_id_that_cannot_exist_is_a_problem(api: Api) -> None:
    ada = await api.user()
    check(await ada.get("/runs/%00"), 422)
    check(await ada.get("/runs/" + "x" * 5000), 404)
    check(await ada.get("/runs?experiment_id=%00"), 422)


async def test_a_fault_of_ours_shows_no_traceback_and_can_be_found_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    @api.app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("secret inside")

    with caplog.at_level(logging.ERROR, "backend"):
        answer = await api.client().get("http://api.test/broken")
    check(answer, 500)
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    request_id = answer.json()["request_id"]
    assert any(request_id in r.getMessage() and r.exc_info for r in caplog.records)


async def test_answers_are_not_kept_by_caches(api: Api) -> None:
    answer = await api.client().get("http://api.test/livez")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
