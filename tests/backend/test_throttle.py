"""Passwords cannot be tried as fast as the network allows."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import psycopg
import pytest

from backend.accounts.throttle import PER_ACCOUNT, PER_ADDRESS
from tests.backend.api import PASSWORD, Api, running_api

REFILL = PER_ACCOUNT.interval.total_seconds()


async def attempt(
    api: Api, password: str = "guess", username: str = "ada", address: str = "192.0.2.1"
) -> httpx.Response:
    async with api.client(address=address) as client:
        return await client.post("/session", json={"username": username, "password": password})


async def fill(api: Api, username: str = "ada") -> None:
    """Use up an account's allowance, from one address a try."""
    for number in range(PER_ACCOUNT.burst):
        answer = await attempt(api, username=username, address=f"198.51.100.{number}")
        assert answer.status_code == 401


@pytest.mark.parametrize("username", ["ada", "nobody"])
async def test_an_account_has_a_few_tries_and_then_one_at_a_time(api: Api, username: str) -> None:
    await api.user("ada")
    await fill(api, username)
    refused = await attempt(api, username=username)
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == f"{REFILL:.0f}"
    assert refused.json()["title"] == "Too Many Requests"
    api.clock.advance(REFILL - 1)
    assert (await attempt(api, username=username)).headers["retry-after"] == "1"
    api.clock.advance(1)
    assert (await attempt(api, username=username)).status_code == 401
    assert (await attempt(api, username=username)).status_code == 429


async def test_the_right_password_waits_too_and_then_resets_the_account(api: Api) -> None:
    await api.user("ada")
    await fill(api)
    assert (await attempt(api, PASSWORD)).status_code == 429
    api.clock.advance(REFILL)
    assert (await attempt(api, PASSWORD)).status_code == 200
    await fill(api)
    assert (await attempt(api)).status_code == 429


async def test_another_account_is_not_affected(api: Api) -> None:
    await api.user("ada")
    await api.user("bob")
    await fill(api)
    assert (await attempt(api, PASSWORD, username="bob")).status_code == 200


async def test_sessions_keys_and_tickets_for_them_go_on_working(api: Api) -> None:
    ada = await api.user("ada")
    key = (await ada.post("/api-keys", json={"name": "laptop"})).json()["token"]
    await fill(api)
    assert (await ada.get("/me")).status_code == 200
    for _ in range(PER_ACCOUNT.burst + 1):
        assert (await api.client(key).post("/session/tickets")).status_code == 200


async def test_tickets_for_a_password_share_the_allowance(api: Api) -> None:
    await api.user("ada")
    await fill(api)
    body = {"username": "ada", "password": PASSWORD}
    assert (await api.client().post("/session/tickets", json=body)).status_code == 429


async def test_parallel_tries_get_no_more_than_tries_in_turn(api: Api) -> None:
    await api.user("ada")
    answers = await asyncio.gather(*(attempt(api) for _ in range(PER_ACCOUNT.burst + 10)))
    counts = Counter(answer.status_code for answer in answers)
    assert counts == {401: PER_ACCOUNT.burst, 429: 10}


async def test_several_api_processes_count_together(api: Api, database_url: str) -> None:
    await api.user("ada")
    await fill(api)
    async with running_api(database_url, api.settings.home) as other:
        assert (await attempt(other)).status_code == 429


async def test_an_address_has_an_allowance_over_all_names(api: Api) -> None:
    await api.user("ada")
    for number in range(PER_ADDRESS.burst):
        assert (await attempt(api, username=f"name {number}")).status_code == 401
    refused = await attempt(api, PASSWORD)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == f"{PER_ADDRESS.interval.total_seconds():.0f}"
    assert (await attempt(api, PASSWORD, address="192.0.2.2")).status_code == 200


async def test_an_account_of_ones_own_does_not_clear_the_address(api: Api) -> None:
    await api.user("eve")
    for number in range(PER_ADDRESS.burst - 1):
        await attempt(api, username=f"name {number}")
        if number % 10 == 0:
            assert (await attempt(api, PASSWORD, username="eve")).status_code == 200
    assert (await attempt(api, PASSWORD, username="eve")).status_code == 200
    assert (await attempt(api, username="one more")).status_code == 401
    assert (await attempt(api, PASSWORD, username="eve")).status_code == 429


@pytest.mark.parametrize(
    ("first", "second", "are_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("testclient", "testclient", True),
    ],
)
async def test_a_network_of_ipv6_counts_as_one_address(
    api: Api, first: str, second: str, are_one: bool
) -> None:
    for number in range(PER_ADDRESS.burst):
        await attempt(api, username=f"name {number}", address=first)
    assert (await attempt(api, address=second)).status_code == (429 if are_one else 401)


async def test_what_is_whole_again_is_forgotten_and_names_are_never_kept(
    api: Api, postgres_url: str
) -> None:
    await attempt(api, username="a password in the wrong field")
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:

        def kept() -> str:
            rows = connection.execute("select subject from sign_in_allowances").fetchall()
            return " ".join(subject for (subject,) in rows)

        assert "address 192.0.2.1" in kept()
        assert "wrong field" not in kept()
        await api.turn()
        assert kept()
        api.clock.advance(REFILL)
        await api.turn()
        assert kept() == ""
