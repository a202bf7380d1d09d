"""The picture of the study of asynchronous methods: success by time and by samples, and the lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.async_curve import Curve, Line, on_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#202020", "#b07aa1", "#d1495b", "#edae49", "#0b6e75", "#4c78a8", "#f2a6b0", "#7fc8c4")
NUM_POINTS = 60
"""Places of an axis at which the seeds of an arm are averaged."""


def draw(curves: Mapping[str, Sequence[Curve]], title: str, file: Path) -> None:
    """Every arm's seeds as thin lines and their mean as a thick one, as far as all of them go."""
    import matplotlib  # noqa: PLC0415  slow, and needed for the picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415  likewise

    figure, (left, middle, right) = pyplot.subplots(
        1, 3, figsize=(13, 4.6), dpi=110, layout="constrained"
    )
    for (name, found), color in zip(curves.items(), COLORS, strict=True):
        _lines(left, [by_seconds(one) for one in found], color, name)
        _lines(middle, [by_steps(one) for one in found], color, name)
        _lines(right, [lags(one) for one in found], color, name)
    left.set(xlabel="training seconds", ylabel="held-out success", ylim=(0, 1))
    middle.set(xlabel="steps", ylabel="held-out success", ylim=(0, 1))
    right.set(xlabel="steps", ylabel="staleness of trained tokens, policy versions")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(file)
    pyplot.close(figure)


def by_seconds(curve: Curve) -> Line:
    """Success over training seconds, as the table reads it."""
    return curve.smoothed("seconds")


def by_steps(curve: Curve) -> Line:
    """Success over steps: every step of every arm trains on as many trajectories."""
    return curve.smoothed("step")


def lags(curve: Curve) -> Line:
    """Mean staleness of trained tokens over steps."""
    return curve.staleness_curve


def mean_line(lines: Sequence[Line], num_points: int = NUM_POINTS) -> Line:
    """The mean of lines, at places between the last of their starts and the first of their ends."""
    start, end = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    step = (end - start) / (num_points - 1)
    places = [start + step * index for index in range(num_points)]
    return [(at, sum(on_line(line, at) for line in lines) / len(lines)) for at in places]


def _lines(axes: Axes, lines: Sequence[Line], color: str, name: str) -> None:
    for line in lines:
        axes.plot(*zip(*line, strict=True), color=color, alpha=0.25, linewidth=0.8)
    axes.plot(*zip(*mean_line(lines), strict=True), color=color, linewidth=2, label=name)
