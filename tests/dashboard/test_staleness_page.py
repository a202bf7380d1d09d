from typing import Any

import pytest

from lagoon.metrics import MASKED_HISTOGRAM, TOTAL_HISTOGRAM
from tests.dashboard import canned_series
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
