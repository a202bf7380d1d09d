"""Signing in and out, tickets, API keys, and what is kept of them."""

from __future__ import annotations

import stat
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from backend.accounts.bootstrap import ensure_admin
from tests.backend.api import PASSWORD, Api, running_api


async def test_signing_in_sets_a_cookie_that_scripts_cannot_read(api: Api) -> None:
    await api.user("ada")
    async with api.client() as browser:
        answer = await browser.post("/session", json={"username": "ada", "password": PASSWORD})
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{api.settings.session_cookie}=lgn_")
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert "Path=/" in cookie
        me = (await browser.get("/me")).json()
        assert me == answer.json()["user"]
        assert me["username"] == "ada"
        assert me["role"] == "member"


@pytest.mark.parametrize(
    ("urls", "is_secure"),
    [
        ({"api_url": "https://lagoon.example"}, True),
        ({"api_url": "http://api:8000", "public_api_url": "https://lagoon.example"}, True),
        ({"api_url": "http://api:8000", "public_api_url": "http://127.0.0.1:8000"}, False),
    ],
)
async def test_the_cookie_is_secure_when_browsers_reach_the_api_over_https(
    database_url: str, api: Api, urls: dict[str, str], is_secure: bool
) -> None:
    await api.user("ada")
    body = {"username": "ada", "password": PASSWORD}
    async with running_api(database_url, api.settings.home, **urls) as served:
        answer = await served.client().post("/session", json=body)
        assert ("Secure" in answer.headers["set-cookie"]) is is_secure
        cookie = f"{served.settings.session_cookie}={answer.json()['token']}"
        page = served.client(cookie=cookie, origin=list(urls.values())[-1])
        assert (await page.post("/experiments", json={"title": "mine"})).status_code == 201


async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(api: Api) -> None:
    await api.user("ada")
    wrong, unknown = [
        await api.client().post("/session", json={"username": name, "password": "guess"})
        for name in ("ada", "eve\0")
    ]
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json()["detail"] == unknown.json()["detail"]
    assert "set-cookie" not in wrong.headers


async def test_signing_out_ends_the_session_everywhere(api: Api) -> None:
    ada = await api.user()
    assert (await ada.delete("/session")).status_code == 204
    assert (await ada.get("/me")).status_code == 401


async def test_a_session_expires(api: Api) -> None:
    ada = await api.user()
    api.clock.advance(31 * 24 * 3600)
    assert (await ada.get("/me")).status_code == 401


async def test_a_ticket_signs_a_browser_in_once(api: Api) -> None:
    await api.user("ada")
    body = {"username": "ada", "password": PASSWORD}
    ticket = (await api.client().post("/session/tickets", json=body)).json()["ticket"]
    page = f"{api.settings.dashboard_url}/run?run=r1"
    async with api.client() as browser:
        answer = await browser.get("/signin", params={"ticket": ticket, "next": page})
        assert answer.status_code == 303
        assert answer.headers["location"] == page
        assert (await browser.get("/me")).json()["username"] == "ada"
    async with api.client() as thief:
        answer = await thief.get("/signin", params={"ticket": ticket, "next": page})
        assert answer.status_code == 303
        assert parse_qs(urlsplit(answer.headers["location"]).query) == {"signin": ["expired"]}
        assert "set-cookie" not in answer.headers


async def test_a_ticket_expires_after_ten_minutes(api: Api) -> None:
    ada = await api.user()
    ticket = (await ada.post("/session/tickets")).json()["ticket"]
    api.clock.advance(601)
    answer = await api.client().get("/signin", params={"ticket": ticket})
    assert answer.headers["location"].endswith("?signin=expired")


async def test_a_ticket_leads_to_the_dashboard_and_to_no_other_site(api: Api) -> None:
    ada = await api.user()
    for elsewhere in (
        "https://evil.example/",
        "//evil.example",
        "http://127.0.0.1:8501@evil.example/",
        "http://127.0.0.1:8501\\@evil.example/",
        "javascript:alert(1)",
        "http://[",
        "",
    ):
        ticket = (await ada.post("/session/tickets")).json()["ticket"]
        answer = await api.client().get("/signin", params={"ticket": ticket, "next": elsewhere})
        assert answer.headers["location"] == api.settings.dashboard_url, elsewhere


async def test_a_cookie_does_not_let_another_sites_page_change_anything(api: Api) -> None:
    ada = await api.user()
    token = ada.headers["authorization"].removeprefix("Bearer ")
    foreign = api.client(
        cookie=f"{api.settings.session_cookie}={token}", origin="https://evil.example"
    )
    ours = api.client(
        cookie=f"{api.settings.session_cookie}={token}", origin=api.settings.dashboard_url
    )
    body = {"title": "an experiment"}
    assert (await foreign.post("/experiments", json=body)).status_code == 403
    assert (await ours.post("/experiments", json=body)).status_code == 201


async def test_an_api_key_works_until_it_is_revoked(api: Api) -> None:
    ada, bob = await api.user("ada"), await api.user("bob")
    made = (await ada.post("/api-keys", json={"name": "laptop"})).json()
    assert made["token"].startswith(f"lgk_{made['id']}.")
    script = api.client(made["token"])
    assert (await script.get("/me")).json()["username"] == "ada"
    [listed] = (await ada.get("/api-keys")).json()["items"]
    assert listed["name"] == "laptop"
    assert listed["last_used_at"] == "2030-01-01T12:00:00Z"
    assert "token" not in listed
    assert (await bob.delete(f"/api-keys/{made['id']}")).status_code == 404
    assert (await ada.delete(f"/api-keys/{made['id']}")).status_code == 204
    assert (await script.get("/me")).status_code == 401


async def test_no_secret_is_stored_as_it_is(api: Api, postgres_url: str) -> None:
    ada = await api.user()
    _run_id, driver = await api.started(ada)
    key = (await ada.post("/api-keys", json={"name": "laptop"})).json()["token"]
    ticket = (await ada.post("/session/tickets")).json()["ticket"]
    secrets = [
        PASSWORD,
        *(
            token.rpartition(".")[2]
            for token in (
                key,
                ticket,
                ada.headers["authorization"],
                driver.headers["authorization"],
            )
        ),
    ]
    assert all(secrets)
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        for table in ("users", "sessions", "signin_tickets", "api_keys", "attempts", "outbox"):
            rows = connection.execute(f"select {table}::text from {table}".encode()).fetchall()
            assert table in ("users", "outbox") or rows
            text = str(rows)
            for secret in secrets:
                assert secret not in text, table
                assert secret.encode().hex() not in text, table
        hashes = connection.execute("select password_hash from users").fetchall()
    assert all(hash.startswith("$argon2id$") for (hash,) in hashes)


async def test_the_first_start_makes_an_admin_with_a_random_password_in_a_private_file(
    api: Api,
) -> None:
    await ensure_admin(api.context)
    await ensure_admin(api.context)
    file = api.settings.credentials_dir / "admin-password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(api.settings.service_token_path.stat().st_mode) == 0o600
    body = {"username": "admin", "password": file.read_text().strip()}
    answer = await api.client().post("/session", json=body)
    assert answer.json()["user"]["role"] == "admin"


@pytest.mark.parametrize("text", ["", "  "])
async def test_an_empty_setting_gives_the_first_admin_a_random_password(
    database_url: str, api: Api, text: str
) -> None:
    async with running_api(database_url, api.settings.home, admin_password=text) as other:
        await ensure_admin(other.context)
        chosen = (other.settings.credentials_dir / "admin-password").read_text().strip()
        assert len(chosen) >= 16
        for password, status in ((text, 401), (chosen, 200)):
            body = {"username": "admin", "password": password}
            assert (await other.client().post("/session", json=body)).status_code == status


async def test_the_first_admin_takes_the_password_that_was_set(database_url: str, api: Api) -> None:
    other = Api(database_url, api.settings.home, admin_password="chosen by hand")
    try:
        await ensure_admin(other.context)
        body = {"username": "admin", "password": "chosen by hand"}
        assert (await other.client().post("/session", json=body)).status_code == 200
        assert not (other.settings.credentials_dir / "admin-password").exists()
    finally:
        await other.close()
