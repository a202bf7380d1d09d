"""Getting in: keys, links, the demo, and the files they are kept in."""

import stat
from dataclasses import replace

import httpx
import pytest

from cli.client import Api, connect, load_credentials
from cli.demo import RUNS, make_demo
from cli.home import Home, find_home
from cli.output import Refusal
from cli.ports import ports_of_block
from cli.signin import fresh_link, sign_in, sign_in_link
from cli.up import welcome
from tests.cli.fake_api import URL, FakeApi, page, problem, run, signed_in_home

PAGE = "http://page.test"


def new_home(folder) -> Home:
    home = Home(folder / "home")
    home.create()
    (home.credentials / "admin-password").write_text("secret\n")
    return home


def test_the_first_start_makes_an_api_key_with_the_admins_password(tmp_path):
    home = new_home(tmp_path)
    api = FakeApi(
        {
            "POST /session": {"user": {}, "token": "lgn_s.t"},
            "POST /api-keys": httpx.Response(201, json={"token": "lgk_a.b"}),
        }
    )
    credentials = sign_in(home, URL, PAGE, api)
    assert credentials.token == "lgk_a.b"
    assert api.bodies("POST /session") == [{"username": "admin", "password": "secret"}]
    assert api.requests[1].headers["Authorization"] == "Bearer lgn_s.t"
    assert load_credentials(home) == credentials
    assert stat.S_IMODE((home.credentials / "cli.json").stat().st_mode) == 0o600


def test_a_key_that_still_opens_is_kept_and_follows_the_api_to_a_new_port(tmp_path):
    home = signed_in_home(tmp_path)
    api = FakeApi({"GET /me": {"username": "admin"}})
    assert sign_in(home, "http://elsewhere.test", PAGE, api).token == "lgk_x.y"
    kept = load_credentials(home)
    assert kept is not None
    assert kept.api_url == "http://elsewhere.test"
    assert [request.method for request in api.requests] == ["GET"]


def elsewhere(monkeypatch) -> None:
    monkeypatch.setenv("LAGOON_API_URL", "http://elsewhere.test/")
    monkeypatch.setenv("LAGOON_API_KEY", "lgk_e.e")


def test_a_start_signs_in_to_its_own_api_whatever_the_environment_says(tmp_path, monkeypatch):
    elsewhere(monkeypatch)
    home = replace(signed_in_home(tmp_path), is_implied=True)
    api = FakeApi({"GET /me": {}, "POST /session/tickets": {"ticket": "lgt_1.2"}})
    assert sign_in(home, URL, PAGE, api).token == "lgk_x.y"
    page_of_home, link = fresh_link(home, api)
    assert page_of_home == PAGE
    assert link.startswith(URL)
    assert {request.url.host for request in api.requests} == {"api.test"}
    assert "/api/v1/api-keys" not in {request.url.path for request in api.requests}


def test_a_named_home_outranks_the_environments_api_and_the_usual_one_does_not(
    tmp_path, monkeypatch
):
    elsewhere(monkeypatch)
    home = signed_in_home(tmp_path)
    monkeypatch.setenv("LAGOON_HOME", str(home.root))
    api = FakeApi({"GET /me": {}})
    for option in (home.root, None):
        with connect(find_home(option), api) as client:
            client.get("/me")
    asked = [(request.url.host, request.headers["Authorization"]) for request in api.requests]
    assert asked == [("api.test", "Bearer lgk_x.y"), ("elsewhere.test", "Bearer lgk_e.e")]


def test_a_changed_password_is_said_and_nothing_is_kept(tmp_path):
    home = new_home(tmp_path)
    api = FakeApi({"POST /session": problem(401, "Wrong username or password")})
    with pytest.raises(Refusal, match="Wrong username or password"):
        sign_in(home, URL, PAGE, api)
    assert load_credentials(home) is None


def test_a_lost_password_file_is_said(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    with pytest.raises(Refusal, match=r"admin-password is gone\..*lagoon keys create"):
        sign_in(home, URL, PAGE, FakeApi({}))


def test_the_link_carries_a_ticket_and_leads_to_the_dashboard():
    api = FakeApi({"POST /session/tickets": {"ticket": "lgt_1.2"}})
    with Api(URL, "k", api) as client:
        link = httpx.URL(sign_in_link(client, URL, PAGE))
    assert link.path == "/api/v1/signin"
    assert dict(link.params) == {"ticket": "lgt_1.2", "next": PAGE}


def test_the_demo_is_made_once_and_every_request_has_its_key(tmp_path):
    home = signed_in_home(tmp_path)
    presets = [{"name": preset, "config": {"of": preset}} for _, preset in RUNS]
    api = FakeApi(
        {
            "GET /presets": page(*presets),
            "POST /experiments": httpx.Response(201, json={"id": "e1"}),
            "POST /runs": httpx.Response(201, json=run()),
        }
    )
    with Api(URL, "k", api) as client:
        assert make_demo(home, client)
        assert not make_demo(home, client)
    made = api.bodies("POST /runs")
    assert [body["config"]["of"] for body in made] == ["grpo-calculator", "es-sudoku4"]
    assert {body["experiment_id"] for body in made} == {"e1"}
    keys = [request.headers.get("Idempotency-Key") for request in api.requests[1:]]
    assert len(set(keys)) == 3
    assert None not in keys


def test_a_demo_that_broke_off_is_completed_at_the_next_start(tmp_path):
    home = signed_in_home(tmp_path)
    presets = [{"name": preset, "config": {}} for _, preset in RUNS]
    answers = {
        "GET /presets": page(*presets),
        "POST /experiments": {"id": "e1"},
        "POST /runs": [run(), problem(503, "The database is away."), run()],
    }
    api = FakeApi(answers)
    with Api(URL, "k", api) as client:
        with pytest.raises(Refusal, match="database is away"):
            make_demo(home, client)
        assert make_demo(home, client)
    keys = [
        request.headers["Idempotency-Key"]
        for request in api.requests
        if request.url.path.endswith("/experiments")
    ]
    assert keys == ["demo-experiment"] * 2  # the API answers the second with the first's


def test_the_link_is_said_when_the_demo_cannot_be_made(tmp_path, capsys):
    home = signed_in_home(tmp_path)
    api = FakeApi(
        {
            "GET /me": {},
            "GET /presets": problem(503, "The database is away."),
            "POST /session/tickets": {"ticket": "lgt_1.2"},
        }
    )
    welcome(home, ports_of_block(20000), demo=True, transport=api)
    said = capsys.readouterr()
    assert "ticket=lgt_1.2" in said.out
    assert "The demo could not be made" in said.err
    assert not (home.root / "demo-made").exists()
