"""Staleness: how many policy versions lie between sampling a token and training on it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from dashboard import charts, markup, palette, records
from dashboard.axes import Axis, Ruler
from dashboard.views.area import RunArea, panel
from dashboard.views.method_of import is_synchronous, method_of
from dashboard.words import number, percent, plural
from lagoon.metrics import (
    GENERATION_HISTOGRAM,
    MASKED_HISTOGRAM,
    SPAN_HISTOGRAM,
    STALENESS_COVERAGE,
    STALENESS_GENERATION,
    STALENESS_MISSING,
    STALENESS_TOTAL,
    STALENESS_WAITING,
    TOTAL_HISTOGRAM,
    WAITING_HISTOGRAM,
    WORST_HISTOGRAM,
    Metric,
)
from lagoon.staleness import mean, quantile


@dataclass(frozen=True, slots=True)
class Bars:
    """One histogram of the page."""

    metric: Metric
    title: str
    note: str
    unit: str
    color: str


BY_TOKEN = (
    Bars(TOTAL_HISTOGRAM, "In all", "Trained − sampled version", "tokens", palette.SERIES[0]),
    Bars(
        GENERATION_HISTOGRAM,
        "While generating",
        "Completed − sampled version",
        "tokens",
        palette.SERIES[1],
    ),
    Bars(
        WAITING_HISTOGRAM,
        "While waiting",
        "Trained − completed version",
        "tokens",
        palette.SERIES[3],
    ),
)
WORST = Bars(
    WORST_HISTOGRAM,
    "Oldest token",
    "Trajectories by their worst token",
    "trajectories",
    palette.SERIES[2],
)
SPAN = Bars(
    SPAN_HISTOGRAM,
    "Span",
    "Trajectories by the number of versions that sampled them",
    "trajectories",
    palette.SERIES[5],
)
MASKED = Bars(
    MASKED_HISTOGRAM,
    "Masked",
    "Tokens that a correction gave weight 0, by age",
    "tokens",
    palette.SERIES[4],
)
PARTS = (
    (STALENESS_GENERATION, "while generating", palette.SERIES[1]),
    (STALENESS_WAITING, "while waiting", palette.SERIES[3]),
)
QUANTILES = (
    (0.5, "median", palette.SERIES[0]),
    (0.9, "90 %", palette.SERIES[4]),
    (0.99, "99 %", palette.SERIES[3]),
    (1.0, "worst", palette.CORAL),
)
"""Shares of the tokens, and the lines that say how stale the freshest of that share at most are."""
RULE = "Tokens without one are counted as missing, never as zero: they are in no count here."
NAMED = 5
"""Steps that a sentence names."""


def show(area: RunArea) -> None:
    """Exact counts in all, counts over steps, means over steps."""
    area.curves([STALENESS_COVERAGE, STALENESS_MISSING, *(metric for metric, *_ in PARTS)])
    rows = (BY_TOKEN, (WORST, SPAN, MASKED))
    totals = {
        part.metric.name: _total(_histogram(area, part.metric)) for row in rows for part in row
    }
    missing = _missing(area)
    if not any(totals.values()):
        words = missing or ("No tokens trained on yet.", "Counts appear with the first update.")
        st.html(markup.notice(*words, kind="warn") if missing else markup.empty(*words))
        return
    method = method_of(area.detail["config"])
    title = method.title if method else str(area.detail["method"])
    st.html(markup.notice(*verdict(totals, title, is_synchronous=is_synchronous(method))))
    if missing:
        st.html(markup.notice(*missing, kind="warn"))
    else:
        of = " of the steps that arrived" if _is_cut(area) else ""
        st.caption(f"The policy version is known for all trained tokens{of}. {RULE}")
    for row in rows:
        shown = [part for part in row if part is not MASKED or totals[part.metric.name]]
        for column, part in zip(st.columns(len(shown), gap="medium"), shown, strict=True):
            with column:
                _bars(area, totals[part.metric.name], part)
    with st.expander("Exact counts"):
        st.html(counts_table([part for row in rows for part in row], totals))
    _over_steps(area)


def _bars(area: RunArea, counts: dict[int, int], part: Bars) -> None:
    panel(
        area,
        part.title,
        f"bars_{part.metric.name.split('/')[1]}",
        lambda: charts.bars(counts, "policy versions", part.unit, part.color) if counts else None,
        part.note,
    )


def counts_table(parts: Sequence[Bars], totals: Mapping[str, Mapping[int, int]]) -> str:
    """All counts, a row for each number of versions, and their sums."""
    shown = [part for part in parts if totals[part.metric.name]]
    columns = [totals[part.metric.name] for part in shown]
    lags = sorted({lag for counts in columns for lag in counts})
    rows = [[str(lag), *(number(counts.get(lag, 0)) for counts in columns)] for lag in lags]
    sums = [f"<b>{number(sum(counts.values()))}</b>" for counts in columns]
    return markup.table(
        ("versions", *(f"{part.title}, {part.unit}" for part in shown)),
        [*rows, ["<b>sum</b>", *sums]],
        numeric=range(1, len(shown) + 1),
    )


def verdict(
    totals: dict[str, dict[int, int]], method: str, *, is_synchronous: bool
) -> tuple[str, str]:
    """The histogram in a sentence, and for an all-zero one the reason."""
    counts = totals[TOTAL_HISTOGRAM.name]
    tokens = sum(counts.values())
    stale = sum(count for lag, count in counts.items() if lag)
    if not stale:
        return (
            f"All {number(tokens)} trained tokens have staleness 0.",
            f"{method} waits: generation stops while the weights change, and every update "
            "trains on data of its own policy version only. Asynchronous methods let the two "
            "overlap; their tokens lag by the versions counted here."
            if is_synchronous
            else "Generation kept up with training so far.",
        )
    return (
        f"Trained tokens lag by {mean(counts):.2f} policy versions on average, {max(counts)} at "
        "most.",
        f"{percent(1 - stale / tokens)} of {number(tokens)} tokens were trained on by the very "
        "version that sampled them.",
    )


def _histogram(area: RunArea, metric: Metric) -> records.Histogram:
    return area.watch.kept(
        f"histogram {metric.name}",
        lambda: area.site.api.histogram(area.watch.run_id, metric.name),
    )


def _total(histogram: records.Histogram) -> dict[int, int]:
    return _counts(histogram["total"].get("counts", {}))


def _over_steps(area: RunArea) -> None:
    items = _histogram(area, TOTAL_HISTOGRAM)["items"]
    left, right = st.columns(2, gap="medium")
    with left:
        panel(
            area,
            "Staleness over the run",
            "heat",
            lambda: _heat(items, area.ruler),
            f"Shares of the tokens of {per_step(items)}",
        )
    with right:
        panel(
            area,
            "Quantiles, mean and worst",
            "staleness_means",
            lambda: _quantiles(items, area.ruler),
            f"Exact, over the tokens of {per_step(items)}",
        )
    panel(
        area,
        "Generating and waiting",
        "staleness_parts",
        lambda: _parts(area),
        "Means over each step's tokens: the two add up to the whole",
    )


def per_step(items: Sequence[records.HistogramStep]) -> str:
    """Of what the counts are: of each step, or of ranges of steps that the API has added up."""
    longest = max((item["step"] - item["first_step"] + 1 for item in items), default=1)
    if longest == 1:
        return "each step"
    return f"ranges of steps: sums over {longest} steps at most, each at its last"


def _quantiles(items: Sequence[records.HistogramStep], ruler: Ruler) -> charts.Drawing:
    if not items:
        return None
    xs = ruler.place_steps([item["step"] for item in items])
    counts = [_counts(item["counts"]) for item in items]
    members = [
        charts.Line(name, xs, [quantile(each, share) for each in counts], color)
        for share, name, color in QUANTILES
    ]
    members.append(charts.Line("mean", xs, [mean(each) for each in counts], palette.INK, "dot"))
    figure = charts.chart(_title(ruler), STALENESS_TOTAL.unit, height=280)
    figure.layout["yaxis"]["rangemode"] = "tozero"
    return charts.lines(figure, members)


def _parts(area: RunArea) -> charts.Drawing:
    ruler = area.ruler
    members = [
        charts.line_of(curve, ruler, name, color)
        for metric, name, color in PARTS
        if (curve := area.curve(metric))
    ]
    if not members:
        return None
    return charts.stacked(members, ruler.title, STALENESS_TOTAL.unit, hover=".3g")


def _counts(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(lag): count for lag, count in counts.items()}


def _title(ruler: Ruler) -> str:
    """Counts come without times: on the clock's axis they stand over steps."""
    return Axis.STEP.caption if ruler.axis is Axis.TIME else ruler.title


def _heat(items: Sequence[records.HistogramStep], ruler: Ruler) -> charts.Drawing:
    if not items:
        return None
    counts = [_counts(item["counts"]) for item in items]
    xs = ruler.place_steps([item["step"] for item in items])
    return charts.heat_map(xs, counts, _title(ruler), STALENESS_TOTAL.unit)


def _missing(area: RunArea) -> tuple[str, str] | None:
    """What is in no count; a run from before that was reported has the share alone."""
    missing, coverage = area.curve(STALENESS_MISSING), area.curve(STALENESS_COVERAGE)
    if missing:
        is_whole = not (missing.is_thinned or _is_cut(area))
        return missing_words(missing.values, is_whole=is_whole)
    shares = coverage.values if coverage else {}
    return missing_words({step: math.nan for step, share in shares.items() if share < 1})


def _is_cut(area: RunArea) -> bool:
    """The driver had no room for some points: there are steps that nothing is known of."""
    return any(each["num_dropped"] for each in area.detail["missing"] if each["kind"] == "points")


def missing_words(missing: Mapping[int, float], *, is_whole: bool = True) -> tuple[str, str] | None:
    """How many trained tokens have no known version, and at which steps lately; None without any.

    A count that is not known is NaN. Not ``is_whole``: there are steps that are not in ``missing``.
    """
    counts = {step: count for step, count in missing.items() if count}
    if not counts:
        return None
    total, steps = math.fsum(counts.values()), sorted(counts)
    tokens = plural(int(total), "trained token") if math.isfinite(total) else "some trained tokens"
    least, more = ("", "") if is_whole else ("at least ", " Not every step's count is here.")
    named = ", ".join(map(str, steps[-NAMED:]))
    earlier = f" and {plural(len(steps) - NAMED, 'earlier one')}" if steps[:-NAMED] else ""
    return (
        f"The policy version of {least}{tokens} is missing.",
        f"At step {named}{earlier}. {RULE}{more}",
    )
