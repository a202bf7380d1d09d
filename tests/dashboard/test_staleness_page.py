import math
from typing import Any

import pytest

from dashboard.views.tabs.staleness import missing_words
from lagoon.metrics import (
    MASKED_HISTOGRAM,
    STALENESS_COVERAGE,
    STALENESS_MISSING,
    TOTAL_HISTOGRAM,
)
from tests.dashboard import canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page, text
from tests.dashboard.recorded import record, with_run
from tests.dashboard.test_pages import RUNS, run_page


@pytest.mark.parametrize("is_masked", [False, True])
def test_masked_tokens_are_drawn_by_their_age_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, is_masked: bool
) -> None:
    histogram = canned_series.histogram

    def with_masked(run_id: str, name: str, **how: Any) -> Any:
        asked = TOTAL_HISTOGRAM.name if is_masked and name == MASKED_HISTOGRAM.name else name
        return histogram(run_id, asked, **how)

    monkeypatch.setattr(canned_series, "histogram", with_masked)
    tested = run_page("running", "staleness")
    assert not tested.exception
    drawn = "".join(map(str, tested.get("plotly_chart")))
    assert ("bars_masked_tokens" in drawn) == is_masked


def test_an_asynchronous_run_shows_heat_map_quantiles_parts_and_exact_counts() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record("pace")), tab="staleness")
    assert not tested.exception
    shown = text(tested)
    assert "Trained tokens lag by" in shown
    assert "The policy version is known for all trained tokens." in shown
    drawn = "".join(map(str, tested.get("plotly_chart")))
    for key in ("heat", "staleness_means", "staleness_parts", "bars_worst_trajectories"):
        assert f"chart_{key}" in drawn
    assert "Oldest token, trajectories" in shown


@pytest.mark.parametrize(
    ("missing", "is_whole", "words"),
    [
        ({1: 0, 2: 10}, True, "of 10 trained tokens is missing. At step 2. Tokens"),
        ({1: 1}, True, "of 1 trained token is missing. At step 1."),
        (dict.fromkeys(range(1, 9), 2), True, "of 16 trained tokens is missing. At step 4, 5, 6, "
         "7, 8 and 3 earlier ones."),
        ({1: 0, 9: 3}, False, "of at least 3 trained tokens is missing. At step 9."),
        ({7: math.nan}, True, "of some trained tokens is missing. At step 7."),
    ],
)  # fmt: skip
def test_missing_versions_are_counted_and_their_latest_steps_named(
    missing: dict[int, float], is_whole: bool, words: str
) -> None:
    found = missing_words(missing, is_whole=is_whole)
    assert found is not None
    said = " ".join(found)
    assert words in said
    assert "counted as missing, never as zero" in said
    assert ("Not every step's count is here." in said) != is_whole


def test_where_no_version_is_missing_nothing_is_said_to_be() -> None:
    assert missing_words({1: 0, 2: 0.0}) is None
    assert missing_words({}, is_whole=False) is None


def long_run(missing: dict[int, int], last: int, *, is_older: bool = False) -> FakeApi:
    """A run of many steps of 100 tokens, whose histograms the API adds up over five steps each."""
    fake = FakeApi()
    steps = range(1, last + 1)
    counts = {step: float(missing.get(step, 0)) for step in steps}
    shares = {step: 1 - count / 100 for step, count in counts.items()}
    series = [canned_series.one_series(STALENESS_COVERAGE, shares)]
    if not is_older:
        series.append(canned_series.one_series(STALENESS_MISSING, counts))

    def histogram(name: str) -> Any:
        items = [
            {"first_step": first, "step": first + 4, "counts": {"0": round(500 - sum(held))}}
            for first in range(1, last, 5)
            if (held := [counts[step] for step in range(first, first + 5)])
        ]
        return {"cursor": "1", "items": items, "total": {"counts": {"0": 100 * last}}}

    fake.series[RUNS["running"]] = series
    fake.histograms[RUNS["running"]] = histogram
    return fake


def test_missing_versions_are_of_their_own_steps_where_counts_are_of_ranges() -> None:
    shown = text(run_page("running", "staleness", long_run({503: 25, 505: 10}, 1000)))
    assert "The policy version of 35 trained tokens is missing." in shown
    assert "At step 503, 505." in shown
    assert "Shares of the tokens of ranges of steps: sums over 5 steps at most" in shown
    assert "Exact, over the tokens of ranges of steps: sums over 5 steps at most" in shown
    assert "each step" not in shown.replace("Means over each step", "")


def test_missing_versions_survive_the_thinning_of_a_very_long_run() -> None:
    shown = text(run_page("running", "staleness", long_run({503: 25, 2004: 10}, 4000)))
    assert "The policy version of at least 35 trained tokens is missing." in shown
    assert "At step 503, 2004." in shown
    clean = text(run_page("running", "staleness", long_run({}, 4000)))
    assert "The policy version is known for all trained tokens. " in clean


def test_missing_versions_of_an_older_run_are_named_without_a_count() -> None:
    shown = text(run_page("running", "staleness", long_run({503: 25}, 1000, is_older=True)))
    assert "The policy version of some trained tokens is missing." in shown
    assert "At step 503." in shown


def test_a_run_without_any_known_version_is_not_taken_for_one_that_trained_on_nothing() -> None:
    fake = long_run(dict.fromkeys(range(1, 11), 100), 10)
    fake.histograms[RUNS["running"]] = lambda _: {"items": [], "total": {"counts": {}}}
    shown = text(run_page("running", "staleness", fake))
    assert "The policy version of 1\u202f000 trained tokens is missing." in shown
    assert "No tokens trained on yet." not in shown


def test_where_points_were_dropped_only_the_steps_that_arrived_are_judged() -> None:
    fake = long_run({}, 100)
    lost = {"kind": "points", "num_expired": 0, "num_dropped": 7}
    fake.runs[RUNS["running"]]["missing"] = [lost]
    shown = text(run_page("running", "staleness", fake))
    assert "is known for all trained tokens of the steps that arrived." in shown
