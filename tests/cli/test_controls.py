"""``lagoon runs pause``, ``set`` and ``controls``."""

import json

import pytest

from tests.cli.fake_api import FakeApi, problem
from tests.cli.test_commands import lagoon

PATH = "POST /runs/r1/controls"


def changed(words, **more):
    change = {
        "number": 2,
        "words": words,
        "requested_by": "ada",
        "state": "pending",
        "requested_at": "2030-01-01T00:00:00Z",
        "attempt": None,
        "version": None,
        "why": "",
    }
    values = {"paused": False, "method.gamma": 4.0, "method.max_staleness": None}
    return {"values": values, "changes": [change | more]}  # fmt: skip


def test_a_run_is_paused(tmp_path, capsys):
    api = FakeApi({PATH: changed("paused")})
    assert lagoon(api, tmp_path, "runs", "pause", "r1") == 0
    assert api.bodies(PATH) == [{"settings": {"paused": True}}]
    assert api.requests[0].headers["Idempotency-Key"]
    assert capsys.readouterr().out == "Run r1: paused (change 2, pending).\n"


def test_settings_are_set_together(tmp_path, capsys):
    api = FakeApi({PATH: changed("gamma 4 → 0.5")})
    given = ["rollout.max_concurrent=64", "method.gamma=0.5", "method.max_staleness="]
    assert lagoon(api, tmp_path, "runs", "set", "r1", *given, "--json") == 0
    [body] = api.bodies(PATH)
    assert body["settings"] == {
        "rollout.max_concurrent": 64, "method.gamma": 0.5, "method.max_staleness": None,
    }  # fmt: skip
    assert json.loads(capsys.readouterr().out)["changes"][0]["number"] == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("gamma", "is no setting"),
        ("method.gamma=much", "is no number"),
        ("method.gamma=inf", "is no number"),
        ("method.gamma=1e999", "is no number"),
        ("method.gamma=nan", "is no number"),
    ],
)
def test_what_is_no_setting_is_asked_of_nobody(tmp_path, capsys, given, words):
    api = FakeApi({})
    assert lagoon(api, tmp_path, "runs", "set", "r1", given) == 2
    assert words in capsys.readouterr().err
    assert not api.requests


def test_a_refusal_names_its_fields(tmp_path, capsys):
    errors = [{"fields": ["method.target", "method.num_prompts"], "message": "below the batch"}]
    api = FakeApi({PATH: problem(422, "No.", errors)})
    assert lagoon(api, tmp_path, "runs", "set", "r1", "method.target=1") == 1
    assert "method.target, method.num_prompts: below the batch" in capsys.readouterr().err


def test_what_may_be_changed_and_what_was_is_listed(tmp_path, capsys):
    found = changed("gamma 1 → 4", state="applied", attempt=1, version=7)
    api = FakeApi({"GET /runs/r1/controls": found})
    assert lagoon(api, tmp_path, "runs", "controls", "r1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["paused = false", "method.gamma = 4", "method.max_staleness = none"]
    assert lines[4].split()[:5] == ["2", "gamma", "1", "→", "4"]
