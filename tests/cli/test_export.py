"""A run as one document: all of it, and where that cannot be, a word about it."""

import json

import httpx
import pytest

from cli import export
from cli.client import Api
from cli.export import exported
from cli.main import main
from tests.cli.fake_api import URL, FakeApi, page, run, signed_in_home


def reported(**changes):
    """One series as the API answers it."""
    whole = {"name": "trainer/loss", "labels": {}, "n_total": 3, "n_shown": 3, "method": "all"}
    return {"points": {}} | whole | changes


def answers(**changes):
    """A run that has reported a little of everything."""
    return {
        "GET /runs/r1": run(),
        "GET /runs/r1/series": page(
            {"name": "trainer/loss", "kind": "scalar", "last_step": 3},
            {"name": "staleness/total", "kind": "histogram", "last_step": 0},
        ),
        "GET /runs/r1/metrics": {"series": [reported()]},
        "GET /runs/r1/histograms": page({"step": 0, "counts": {"0": 5}}),
        "GET /runs/r1/events": page({"n": 1}, {"n": 2}),
        "GET /runs/r1/log": page({"n": 1, "line": "x"}) | {"next_after": 1},
        "GET /runs/r1/trajectories": page({"trajectory_id": "t"}),
    } | {f"GET /runs/r1/{name}": answer for name, answer in changes.items()}


def document(api):
    with Api(URL, "k", api) as client:
        return exported(client, "r1")


def test_export_writes_one_document(tmp_path):
    output = tmp_path / "run.json"
    home = signed_in_home(tmp_path)
    arguments = ["runs", "export", "r1", "--output", str(output), "--home", str(home.root)]
    with pytest.raises(SystemExit) as ended:
        main(arguments, FakeApi(answers()))
    assert not ended.value.code
    written = json.loads(output.read_text())
    assert written["run"]["id"] == "r1"
    assert written["truncated"] == {}
    assert written["histograms"]["staleness/total"] == [{"step": 0, "counts": {"0": 5}}]
    assert [series["name"] for series in written["metrics"]] == ["trainer/loss"]
    assert written["trajectories"] == [{"trajectory_id": "t"}]


def test_the_whole_log_is_read_page_after_page(monkeypatch):
    monkeypatch.setattr(export, "LOG_LINES", 2)

    def log(request: httpx.Request) -> httpx.Response:
        after, limit = (int(request.url.params[name]) for name in ("after", "limit"))
        lines = [{"n": n, "line": str(n)} for n in range(1, 6) if n > after][:limit]
        return httpx.Response(200, json=page(*lines) | {"next_after": after + len(lines)})

    assert [item["n"] for item in document(FakeApi(answers(log=log)))["log"]] == [1, 2, 3, 4, 5]


def test_histograms_are_read_in_windows_in_which_no_steps_are_summed_up():
    def histogram(request: httpx.Request) -> httpx.Response:
        low, high, most = (
            int(request.url.params[name]) for name in ("from_step", "to_step", "max_steps")
        )
        assert high - low < most
        steps = [step for step in (0, 1999, 2000, 4500) if low <= step <= high]
        return httpx.Response(200, json=page(*({"step": step} for step in steps)))

    series = page(
        {"name": "staleness/total", "kind": "histogram", "last_step": 4500},
        {"name": "staleness/total", "kind": "histogram", "last_step": None},
    )
    api = FakeApi(answers(histograms=histogram, series=series))
    found = document(api)["histograms"]["staleness/total"]
    assert [item["step"] for item in found] == [0, 1999, 2000, 4500]


def test_every_trajectory_is_exported():
    pages = [
        page(*({"trajectory_id": n} for n in range(200)), cursor="c"),
        page({"trajectory_id": 200}),
    ]
    assert len(document(FakeApi(answers(trajectories=pages)))["trajectories"]) == 201


def test_what_the_api_gives_only_in_part_is_named():
    thinned = reported(name="a", n_total=200_000, n_shown=90_000, method="minmax")
    api = FakeApi(
        answers(metrics={"series": [reported(), thinned]}, events=page({"n": 5}, {"n": 6}))
    )
    assert document(api)["truncated"] == {
        "metrics": [{"name": "a", "labels": {}, "n_total": 200_000, "n_shown": 90_000}],
        "events": {"n_total": 6, "n_shown": 2},
    }


def test_what_is_missing_of_a_run_is_named():
    missing = [{"kind": "log_lines", "num_expired": 3, "num_dropped": 0}]
    api = FakeApi({**answers(), "GET /runs/r1": run(missing=missing)})
    assert document(api)["truncated"] == {"missing": missing}
