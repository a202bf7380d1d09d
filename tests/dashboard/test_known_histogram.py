"""The proof of the staleness account: lags that are known by hand, from a trace to the page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from streamlit.testing.v1 import AppTest

from dashboard.client import Api
from lagoon.metrics import (
    GENERATION_HISTOGRAM,
    MASKED_HISTOGRAM,
    SPAN_HISTOGRAM,
    STALENESS_COVERAGE,
    STALENESS_MISSING,
    TOTAL_HISTOGRAM,
    WAITING_HISTOGRAM,
    WORST_HISTOGRAM,
    Metric,
)
from lagoon.staleness import staleness_account
from lagoon.trajectory import Trajectory
from tests.backend.api import Api as RealApi
from tests.builders import trajectory
from tests.dashboard.pages import open_page_on, text
from workers.reporting import Reporter
from workers.sink import PlatformSink

TRACE: dict[int, tuple[Sequence[Trajectory], Sequence[Sequence[bool]]]] = {
    5: (
        (
            trajectory(versions=(5, 5, 5), completed=5),
            # One token whose version nobody knows: in no histogram, and not a zero.
            trajectory(versions=(3, 3, 4, None), completed=4),
        ),
        ((), ()),
    ),
    6: (
        (
            # Its first token was given to it: a prompt has no staleness.
            trajectory(versions=(None, 2, 4, 5), completed=5, mask=(0, 1, 1, 1)),
            trajectory(versions=(6, 6), completed=6),
        ),
        ((True, False, False), ()),
    ),
}
"""What was trained on at a version, and which of its tokens a correction masked."""

KNOWN: dict[Metric, dict[int, dict[int, int]]] = {
    TOTAL_HISTOGRAM: {6: {0: 3, 1: 1, 2: 2}, 7: {0: 2, 1: 1, 2: 1, 4: 1}},
    GENERATION_HISTOGRAM: {6: {0: 4, 1: 2}, 7: {0: 3, 1: 1, 3: 1}},
    WAITING_HISTOGRAM: {6: {0: 3, 1: 3}, 7: {0: 2, 1: 3}},
    WORST_HISTOGRAM: {6: {0: 1, 2: 1}, 7: {0: 1, 4: 1}},
    SPAN_HISTOGRAM: {6: {1: 1, 2: 1}, 7: {1: 1, 3: 1}},
    MASKED_HISTOGRAM: {7: {4: 1}},
}
"""Counted by hand, by the step that the update made."""


def in_all(metric: Metric) -> dict[int, int]:
    steps = KNOWN[metric].values()
    lags = sorted({lag for counts in steps for lag in counts})
    return {lag: sum(counts.get(lag, 0) for counts in steps) for lag in lags}


async def test_a_trace_with_known_lags_is_exactly_its_histogram_in_the_database_and_on_the_page(
    api: RealApi, url: str, tmp_path: Path
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    authorization = str(driver.headers["Authorization"])
    token = str(ada.headers["Authorization"]).removeprefix("Bearer ")

    def send() -> None:
        headers = {"Authorization": authorization}
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
            sink = PlatformSink(
                client, f"{run_id}-a1", tmp_path / "spool", lambda: None, period_seconds=0.0
            )
            reporter = Reporter(sink, lambda: 1.9e9)
            reporter.status("running", "Training.")
            for version, (trained, masked) in TRACE.items():
                account = staleness_account(trained, version, masked)
                reporter.step(version + 1, reporter.staleness(version + 1, account))
            assert sink.close()

    def look() -> None:
        with httpx.Client(base_url=url, trust_env=False) as http:
            viewer = Api(http, token)
            for metric in KNOWN:
                held = viewer.histogram(run_id, metric.name)
                found = {each["step"]: _counts(each["counts"]) for each in held["items"]}
                assert found == KNOWN[metric]
                assert _counts(held["total"]["counts"]) == in_all(metric)
            page = viewer.metrics(run_id, [STALENESS_COVERAGE.name, STALENESS_MISSING.name])
            values = [series["points"]["value"] for series in page["series"]]
            assert values == [[6 / 7, 1], [1, 0]]
            _read_page(open_page_on(viewer, "run", run=run_id, tab="staleness"))

    await asyncio.to_thread(send)
    await asyncio.to_thread(look)


def _read_page(tested: AppTest) -> None:
    assert not tested.exception
    for metric in KNOWN:
        (bars,) = _figure(tested, f"bars_{metric.name.split('/')[1]}")["data"]
        assert dict(zip(bars["x"], bars["y"], strict=True)) == in_all(metric)
    (heat,) = _figure(tested, "heat")["data"]
    assert heat["x"] == [6, 7]
    assert heat["customdata"] == [[3, 2], [1, 1], [2, 1], [0, 0], [0, 1]]
    lines = {line["name"]: line["y"] for line in _figure(tested, "staleness_means")["data"]}
    assert lines["median"] == [0, 1]
    assert lines["worst"] == [2, 4]
    assert lines["mean"] == [5 / 6, 7 / 5]
    shown = text(tested)
    assert "Trained tokens lag by 1.09 policy versions on average, 4 at most." in shown
    assert "The policy version of 1 trained token is missing." in shown
    assert "At step 6. Tokens without one are counted as missing, never as zero" in shown
    rows = re.findall(r"<tr><td>(\d)</td>(.*?)</tr>", shown)
    table = {int(lag): re.findall(r">(\d+)<", cells) for lag, cells in rows}
    assert {lag: int(cells[0]) for lag, cells in table.items() if int(cells[0])} == in_all(
        TOTAL_HISTOGRAM
    )


def _counts(counts: dict[str, int]) -> dict[int, int]:
    return {int(value): count for value, count in counts.items()}


def _figure(tested: AppTest, key: str) -> Any:
    """What the page hands to Plotly for one of its charts."""
    (spec,) = [
        each.proto.spec for each in tested.get("plotly_chart") if f"chart_{key}" in each.proto.id
    ]
    return json.loads(spec)
