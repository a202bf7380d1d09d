from typing import Any

import pytest

from dashboard.views.tabs.staleness import coverage_words
from lagoon.metrics import MASKED_HISTOGRAM, TOTAL_HISTOGRAM
from tests.dashboard import canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page, text
from tests.dashboard.recorded import record, with_run
from tests.dashboard.test_pages import run_page


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
    ("known", "coverage", "words"),
    [
        ({1: 40}, {1: 1.0}, "is known for all trained tokens"),
        ({1: 40, 2: 30}, {1: 1.0, 2: 0.75}, "of 10 trained tokens is missing. At step 2."),
        ({1: 3}, {1: 0.75}, "of 1 trained token is missing. At step 1."),
        ({1: 40}, {1: 1.0, 2: 0.0}, "and all of step 2 is missing. At step 2."),
    ],
)
def test_missing_versions_are_counted_and_their_steps_named(
    known: dict[int, int], coverage: dict[int, float], words: str
) -> None:
    said = " ".join(coverage_words(known, coverage))
    assert words in said
    assert "counted as missing, never as zero" in said


def test_a_histogram_that_came_after_its_scalars_is_not_taken_for_missing_versions() -> None:
    assert "known for all" in coverage_words({}, {1: 1.0})[0]
