import math

import pytest

from dashboard import charts
from dashboard.axes import Axis, Ruler
from dashboard.watch import Curve
from lagoon.metrics import LOSS, TOTAL_TOKENS


def curve(values: dict[int, float]) -> Curve:
    return Curve(LOSS.name, {}, values, {step: 100.0 + 30 * step for step in values})


def line(*ys: float) -> charts.Line:
    return charts.Line("loss", list(range(len(ys))), ys, "#0e8388")


def drawn(*ys: float) -> tuple[list[object], list[tuple[float, str]]]:
    """The line's values and the crosses, each with its place and text."""
    figure = charts.lines(charts.chart("step", "loss"), [line(*ys)]).figure()
    crosses = [trace for trace in figure.data if trace.mode == "markers"]
    marks = [(x, t) for trace in crosses for x, t in zip(trace.x, trace.text, strict=True)]
    return list(figure.data[0].y), marks


def test_a_nan_breaks_the_line_and_gets_a_cross() -> None:
    ys, marks = drawn(1.0, math.nan, 2.0)
    assert ys == [1.0, None, 2.0]
    assert marks == [(1, "NaN")]


def test_each_stretch_of_nans_gets_one_cross() -> None:
    _, marks = drawn(math.nan, math.nan, 1.0, math.nan, math.nan, math.inf)
    assert [x for x, _ in marks] == [0, 3]


def test_infinities_are_named() -> None:
    _, marks = drawn(1.0, math.inf, 1.0, -math.inf)
    assert [text for _, text in marks] == ["∞", "-∞"]


def test_a_series_of_nothing_but_nan_can_be_drawn() -> None:
    ys, marks = drawn(math.nan, math.nan)
    assert ys == [None, None]
    assert marks == [(0, "NaN")]


def test_a_finite_line_has_no_crosses() -> None:
    assert drawn(1.0, 2.0)[1] == []


def test_a_line_that_never_moves_is_not_drawn_around_zero() -> None:
    figure = charts.lines(charts.chart("step", "1/step"), [line(1e-4, 1e-4)]).figure()
    assert tuple(figure.layout.yaxis.range) == (0, 2e-4)


def test_a_single_point_is_visible() -> None:
    figure = charts.lines(charts.chart("step", "loss"), [line(1.0)]).figure()
    assert figure.data[0].mode == "lines+markers"


@pytest.mark.parametrize(("x", "right"), [(0, 1), (3, 6)])
def test_a_single_point_is_not_drawn_beside_negative_steps(x: int, right: int) -> None:
    alone = charts.Line("loss", [x], [1.0], "#0e8388")
    for drawn in (
        charts.lines(charts.chart("step", "loss"), [alone]),
        charts.stacked([alone], "step", "prompts"),
    ):
        left, end = drawn.figure().layout.xaxis.range
        assert -0.05 * right <= left <= 0  # room for half a marker
        assert end == right
    two = charts.lines(charts.chart("step", "loss"), [line(1.0, 2.0)]).figure()
    assert two.layout.xaxis.range is None


def test_a_thinned_chart_says_how_much_of_it_is_drawn() -> None:
    ruler = Ruler(Axis.STEP, None, None)
    thinned = curve(dict.fromkeys(range(1000), 1.0))
    thinned.num_total, thinned.is_thinned = 40_000, True
    drawn = charts.small_multiple([curve({1: 1.0, 2: 2.0}), thinned], LOSS, ruler).figure()
    assert drawn.layout.xaxis.title.text == "step · 1\u202f000 of 40\u202f000 points"
    whole = charts.small_multiple([curve({1: 1.0, 2: 2.0})], LOSS, ruler).figure()
    assert whole.layout.xaxis.title.text == "step"


def test_bars_are_the_exact_counts() -> None:
    bars = charts.bars({0: 10, 3: 2}, "versions", "tokens", "#0e8388").figure().data[0]
    assert dict(zip(bars.x, bars.y, strict=True)) == {0: 10, 3: 2}


def test_a_heat_map_holds_shares_of_each_step() -> None:
    heat = charts.heat_map([1, 2], [{0: 3, 1: 1}, {0: 4}], "step", "versions").figure().data[0]
    assert [list(row) for row in heat.z][:2] == [[0.75, 1.0], [0.25, 0.0]]


def test_an_empty_step_has_no_share_and_no_division_by_zero() -> None:
    heat = charts.heat_map([1], [{}], "step", "versions").figure().data[0]
    assert all(value == 0 for row in heat.z for value in row)


def test_steps_lie_at_the_tokens_sampled_by_then() -> None:
    progress = Curve(TOTAL_TOKENS.name, {}, {10: 1000.0, 20: 3000.0})
    ruler = Ruler(Axis.TOKENS, progress, None)
    assert ruler.place(curve({0: 1.0, 10: 1.0, 15: 1.0, 20: 1.0})) == [0, 1000, 2000, 3000]
    assert ruler.title == "tokens sampled"


def test_without_progress_the_axis_says_step() -> None:
    ruler = Ruler(Axis.TRAJECTORIES, None, None)
    assert ruler.place(curve({4: 1.0})) == [4.0]
    assert ruler.title == "step"


def test_wall_clock_is_minutes_since_the_start() -> None:
    ruler = Ruler(Axis.TIME, None, 100.0)
    assert ruler.place(curve({2: 1.0, 4: 1.0})) == [1.0, 2.0]


def test_a_step_without_a_time_takes_the_one_before() -> None:
    found = curve({2: 1.0, 3: math.nan})
    del found.times[3]
    assert Ruler(Axis.TIME, None, 100.0).place(found) == [1.0, 1.0]
