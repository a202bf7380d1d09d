"""The queue's commands against a fake API."""

import json

import pytest

from tests.cli.fake_api import FakeApi, run
from tests.cli.test_commands import lagoon

QUEUE = {
    "items": [
        {
            "position": 1,
            "run": {"run_id": "r1", "name": "first"},
            "owner": "ada",
            "priority": "normal",
            "cpus": 2.0,
            "gpus": 0.0,
            "num_processes": 2,
            "reason": "Needs 2 CPUs, 0 free: another run holds 2 until it ends.",
            "queued_at": "2030-01-01T12:00:00Z",
            "may_change": True,
        }
    ],
    "paused": [
        {
            "run": {"run_id": "r2", "name": "second"},
            "owner": "ada",
            "priority": "normal",
            "cpus": 2.0,
            "gpus": 0.0,
            "num_processes": 2,
            "restarts_at": "2030-01-01T12:00:05Z",
            "reason": "A generator died.",
            "may_change": True,
        }
    ],
    "leases": [
        {
            "run": None,
            "owner": "bob",
            "attempt": 1,
            "status": "running",
            "cpus": 2.0,
            "gpus": 0.0,
            "nodes": [{"node": "machine", "cpus": 2.0, "gpus": 0.0}],
            "taken_at": "2030-01-01T12:00:00Z",
        }
    ],
    "nodes": [],
}


def test_queue_list_says_who_holds_what_and_why_others_wait(tmp_path, capsys):
    api = FakeApi({"GET /queue": QUEUE})
    assert lagoon(api, tmp_path, "queue", "list") == 0
    held, _, waits = capsys.readouterr().out.partition("\n\n")
    assert held.splitlines()[1].split() == ["-", "-", "bob", "running", "2", "0", "machine"]
    assert waits.splitlines()[1].startswith("1      r1   first  ada    normal")
    assert "another run holds 2 until it ends." in waits
    assert waits.splitlines()[-1].split(maxsplit=7)[-3:] == ["12:00:05", "UTC", "A generator died."]
    assert lagoon(api, tmp_path, "queue", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == QUEUE
    empty = FakeApi({"GET /queue": {"items": [], "paused": [], "leases": [], "nodes": []}})
    assert lagoon(empty, tmp_path, "queue", "list") == 0
    assert capsys.readouterr().out == "Nobody waits.\n"


def test_queue_move_and_priority_ask_the_api(tmp_path, capsys):
    api = FakeApi({"POST /queue/moves": QUEUE, "PATCH /runs/r1/priority": run(priority="low")})
    assert lagoon(api, tmp_path, "queue", "move", "r1", "--before", "r2") == 0
    sent = {"run_id": "r1", "before": "r2", "after": None}
    assert api.bodies("POST /queue/moves") == [sent]
    assert capsys.readouterr().out == "Run r1 has place 1.\n"
    assert lagoon(api, tmp_path, "queue", "priority", "r1", "low") == 0
    assert api.bodies("PATCH /runs/r1/priority") == [{"priority": "low"}]
    assert capsys.readouterr().out == "Run r1 has priority low.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("move", "r1"), "give either --before or --after"),
        (("move", "r1", "--before", "r2", "--after", "r3"), "give either --before or --after"),
        (("priority", "r1", "urgent"), "'urgent' is no priority; there are low, normal, high."),
    ],
)
def test_what_the_queue_cannot_do_is_refused_before_anything_is_sent(
    tmp_path, capsys, arguments, complaint
):
    api = FakeApi({})
    assert lagoon(api, tmp_path, "queue", *arguments) == 2
    assert complaint in capsys.readouterr().err
    assert api.requests == []
