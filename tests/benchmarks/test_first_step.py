"""From submit to the first trained step, against an API that lives in the test."""

from typing import Any

import pytest

from benchmarks.first_step import phases, submit
from cli.client import Api
from lagoon.metrics import LOSS
from tests.cli.fake_api import URL, FakeApi

TRAINED = {"series": [{"name": LOSS.name, "points": {"step": [1], "value": [0.5]}}]}
HISTORY = [
    {"n": 2, "at": "2030-01-01T00:00:04Z", "kind": "phase", "to": None, "reason": "Training."},
    {"n": 1, "at": "2030-01-01T00:00:01.5Z", "kind": "status", "to": "queued", "reason": ""},
]


def api(**answers: Any) -> tuple[Api, FakeApi]:
    known = {
        "POST /runs": {"id": "r1"},
        "GET /runs/r1": {"status": "stopped", "reason": ""},
        "GET /runs/r1/metrics": TRAINED,
        "GET /runs/r1/events": {"items": HISTORY},
        "POST /runs/r1/stop": {},
    }
    fake = FakeApi(known | answers)
    return Api(URL, "key", fake), fake


def test_the_clock_runs_from_submit_to_a_step_that_can_be_read():
    moments = iter([100.0, 117.5])
    client, fake = api()
    found = submit(client, {"seed": 1}, lambda: next(moments))
    assert found.seconds == 17.5
    assert found.phases == {"queued": 0.0, "Training.": 2.5}
    assert fake.bodies("POST /runs") == [{"name": "quickstart", "config": {"seed": 1}}]
    assert [request.url.path for request in fake.requests if request.method == "POST"] == [
        "/api/v1/runs",
        "/api/v1/runs/r1/stop",
    ]


def test_a_series_without_points_is_no_trained_step():
    empty = {"series": [{"name": LOSS.name, "points": {"step": [], "value": []}}]}
    client, _ = api(
        **{
            "GET /runs/r1/metrics": empty,
            "GET /runs/r1": {"status": "failed", "reason": "No memory."},
        }
    )
    with pytest.raises(RuntimeError, match=r"failed: No memory\."):
        submit(client, {})


def test_a_run_without_a_history_has_no_phases():
    assert phases([]) == {}
