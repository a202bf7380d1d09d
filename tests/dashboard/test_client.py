import json

import httpx
import pytest

from dashboard.client import (
    Api,
    ApiProblem,
    ApiUnreachable,
    FieldError,
    NotFound,
    NotSignedIn,
    Unavailable,
    open_connection,
    problem,
)
from tests.dashboard import canned
from tests.dashboard.fake_api import PASSWORD, TOKEN, FakeApi


def signed_in(fake: FakeApi) -> Api:
    return Api(fake.client(), TOKEN)


def answering(*answers: httpx.Response) -> Api:
    remaining = list(answers)
    transport = httpx.MockTransport(lambda request: remaining.pop(0))
    return Api(httpx.Client(transport=transport, base_url="http://api.test"), TOKEN)


def test_every_request_carries_the_viewers_own_token() -> None:
    fake = FakeApi()
    signed_in(fake).me()
    assert fake.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"


def test_without_a_token_no_credential_is_sent() -> None:
    fake = FakeApi()
    with pytest.raises(NotSignedIn):
        Api(fake.client()).me()
    assert "Authorization" not in fake.requests[0].headers


def test_a_wrong_password_is_told_apart_from_other_problems() -> None:
    api = Api(FakeApi().client())
    assert api.sign_in_ticket("admin", PASSWORD) == "one-time"
    with pytest.raises(NotSignedIn):
        api.sign_in_ticket("admin", "wrong")


def test_a_refused_configuration_names_its_fields_and_the_hint() -> None:
    with pytest.raises(ApiProblem) as caught:
        signed_in(FakeApi()).validate({**canned.GRPO, "seeed": 1})
    (found,) = caught.value.errors
    assert found.fields == ("seeed",)
    assert found.hint == "seed"
    assert caught.value.status == 422


def test_a_clash_names_both_fields() -> None:
    config = {"method": {"name": "grpo", "group_size": 1}, "environment": {"name": "calculator"}}
    with pytest.raises(ApiProblem) as caught:
        signed_in(FakeApi()).validate(config)
    assert ("method.group_size", "method.name") in [e.fields for e in caught.value.errors]


def test_statuses_become_the_errors_that_pages_tell_apart() -> None:
    for status, kind in ((401, NotSignedIn), (404, NotFound), (500, Unavailable),
                         (503, Unavailable), (409, ApiProblem)):  # fmt: skip
        assert type(problem(httpx.Response(status, json={"title": "t"}))) is kind


def test_a_problem_without_a_readable_body_still_has_words() -> None:
    for body in (b"<html>", b"[1]", b""):
        found = problem(httpx.Response(502, content=body))
        assert found.title == "Bad Gateway"
        assert found.errors == ()


def test_malformed_field_errors_are_left_out() -> None:
    body = {"title": "t", "errors": ["x", {"fields": ["a"]}, {"fields": ["b"], "message": "m"}]}
    assert problem(httpx.Response(422, json=body)).errors == (FieldError(("b",), "m"),)


def test_an_api_that_is_down_is_said_with_its_address() -> None:
    fake = FakeApi()
    fake.is_down = True
    with pytest.raises(ApiUnreachable, match=r"http://api\.test"):
        signed_in(fake).me()


def test_a_slow_api_is_unreachable_not_a_crash() -> None:
    def late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("late", request=request)

    client = httpx.Client(transport=httpx.MockTransport(late), base_url="http://api.test")
    with pytest.raises(ApiUnreachable, match="in time"):
        Api(client).me()


def test_something_else_on_the_port_is_not_taken_for_the_api() -> None:
    for answer in (httpx.Response(200, text="hello"), httpx.Response(200, json=[1])):
        with pytest.raises(ApiUnreachable, match="not Lagoon's API"):
            answering(answer).me()


def test_an_unchanged_run_is_answered_from_memory() -> None:
    fake = FakeApi()
    api = signed_in(fake)
    first = api.run("r7k2m9qd")
    assert api.run("r7k2m9qd") is first
    assert "If-None-Match" in fake.requests[1].headers
    fake.runs["r7k2m9qd"]["cursor"] += 1
    fake.runs["r7k2m9qd"] = {**fake.runs["r7k2m9qd"], "step": 65}
    assert api.run("r7k2m9qd")["step"] == 65


def test_settings_that_are_not_given_are_not_sent() -> None:
    fake = FakeApi()
    signed_in(fake).metrics("r7k2m9qd", ["reward/mean", "trainer/loss"])
    sent = fake.requests[0].url.params
    assert sent.get_list("name") == ["reward/mean", "trainer/loss"]
    assert "after" not in sent


def test_the_same_key_makes_one_run() -> None:
    fake = FakeApi()
    api = signed_in(fake)
    first = api.create_run("a", canned.GRPO, experiment_id="e1demo", idempotency_key="k")
    again = api.create_run("a", canned.GRPO, experiment_id="e1demo", idempotency_key="k")
    assert first["id"] == again["id"]
    assert json.loads(fake.requests[0].content)["experiment_id"] == "e1demo"


def test_readiness_is_read_when_parts_are_down_too() -> None:
    fake = FakeApi()
    fake.is_database_down = True
    assert signed_in(fake).readiness()["checks"]["postgres"]["ok"] is False


def test_the_shared_connection_pool_keeps_no_cookies() -> None:
    with open_connection("http://api.test") as client:
        request = httpx.Request("GET", "http://api.test/")
        response = httpx.Response(200, headers={"Set-Cookie": "a=b; Path=/"}, request=request)
        client.cookies.extract_cookies(response)
        assert len(client.cookies.jar) == 0
