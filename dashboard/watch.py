"""What a browser session remembers of the run it watches: its detail and its series so far.

Each tick asks only for what is new; when the run's cursor has not moved, for nothing at all. The
memory is the session's own (never shared between viewers), holds one run, and is bounded.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from dashboard import records
from dashboard.client import Api
from dashboard.words import parse_time, to_float
from lagoon.metrics import Metric

MAX_POINTS = 1000
"""Points per series asked of the API: about what a chart is wide."""
MAX_HELD_POINTS = 3000
"""Past this a series is read afresh, thinned by the API."""
MAX_REMEMBERED = 80
"""Histograms, pages and drawn charts that are kept for the next tick."""

T = TypeVar("T")

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its labels."""


@dataclass(slots=True)
class Curve:
    """One series of a run, by step. Later reports of a step replace earlier ones."""

    name: str
    labels: dict[str, str]
    values: dict[int, float] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    num_total: int = 0
    is_thinned: bool = False

    @property
    def steps(self) -> list[int]:
        """Steps in order."""
        return sorted(self.values)

    def add(self, series: records.Series, *, is_delta: bool) -> None:
        """Take in a read of the API."""
        points = series["points"]
        for step, value, at in zip(points["step"], points["value"], points["at"], strict=True):
            self.values[step] = to_float(value)
            moment = parse_time(at)
            self.times[step] = moment.timestamp() if moment else math.nan
        # A thinned series lists its NaN steps beside the points.
        for step in series["nan_steps"]:
            self.values[step] = math.nan
        new = series["n_total"]
        self.num_total = self.num_total + new if is_delta else new
        self.is_thinned = self.is_thinned or series["method"] != "all"

    def last(self, default: float = math.nan) -> float:
        """The newest value."""
        return self.values[max(self.values)] if self.values else default


def _lineage(detail: records.RunDetail) -> list[int | None]:
    """The steps that the run's attempts went on from."""
    return [attempt["resumed_step"] for attempt in detail["attempts"]]


class RunWatch:
    """One run, as far as this session has seen it."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.detail: records.RunDetail | None = None
        self._curves: dict[Key, Curve] = {}
        self._read: dict[str, tuple[int, str | int]] = {}
        self._kept: OrderedDict[str, tuple[int, object]] = OrderedDict()

    def refresh(self, api: Api) -> records.RunDetail:
        """The run's detail now."""
        detail = api.run(self.run_id)
        if self.detail and _lineage(self.detail) != _lineage(detail):
            # A new attempt takes over from the step it went on from: what was read is superseded.
            self._curves, self._read = {}, {}
        self.detail = detail
        return detail

    def curves(self, api: Api, metrics: Iterable[Metric]) -> list[Curve]:
        """The series of ``metrics``, brought up to date with as few requests as possible."""
        names = [metric.name for metric in metrics]
        cursor = self._cursor()
        behind: dict[str | int | None, list[str]] = {}
        for name in names:
            seen = self._read.get(name)
            if seen is None or seen[0] != cursor:
                after = seen[1] if seen and not self._is_full(name) else None
                behind.setdefault(after, []).append(name)
        for after, group in behind.items():
            page = api.metrics(self.run_id, group, after=after, max_points=MAX_POINTS)
            self._take(group, page, is_delta=after is not None)
            self._read |= dict.fromkeys(group, (cursor, page["cursor"]))
        wanted = set(names)
        return [curve for key, curve in sorted(self._curves.items()) if key[0] in wanted]

    def curve(self, api: Api, metric: Metric, **labels: str) -> Curve | None:
        """The series of one metric that has at least these labels, or None."""
        for found in self.curves(api, [metric]):
            if labels.items() <= found.labels.items():
                return found
        return None

    def tail(self, api: Api, metrics: Sequence[Metric], num_steps: int) -> list[Curve | None]:
        """The curves of unlabelled metrics; where any is thinned, their last steps, each one.

        What is left of a thinned curve are extremes: neither steps in a row, nor typical ones.
        """
        curves = [self.curve(api, metric) for metric in metrics]
        held = [curve for curve in curves if curve and curve.values]
        if not any(curve.is_thinned for curve in held):
            return curves
        names = [metric.name for metric in metrics]
        first = max(0, max(max(curve.values) for curve in held) - num_steps + 1)
        page = self.kept(f"tail {names}", lambda: api.metrics(self.run_id, names, from_step=first))
        found: dict[str, Curve] = {}
        for series in page["series"]:
            found[series["name"]] = Curve(series["name"], series["labels"])
            found[series["name"]].add(series, is_delta=False)
        return [found.get(name) for name in names]

    def kept(self, name: str, read: Callable[[], T]) -> T:
        """What ``read`` gave since the run last changed; a bounded number of answers is kept."""
        cursor = self._cursor()
        held = self._kept.get(name)
        if held is None or held[0] != cursor:
            held = (cursor, read())
            self._kept[name] = held
            while len(self._kept) > MAX_REMEMBERED:
                self._kept.popitem(last=False)
        return cast(T, held[1])

    def _cursor(self) -> int:
        return self.detail["cursor"] if self.detail else 0

    def _is_full(self, name: str) -> bool:
        held = (curve for key, curve in self._curves.items() if key[0] == name)
        return any(len(curve.values) > MAX_HELD_POINTS for curve in held)

    def _take(self, names: list[str], page: records.MetricsPage, *, is_delta: bool) -> None:
        if not is_delta:
            self._curves = {key: old for key, old in self._curves.items() if key[0] not in names}
        for series in page["series"]:
            key = (series["name"], tuple(sorted(series["labels"].items())))
            curve = self._curves.setdefault(key, Curve(series["name"], series["labels"]))
            curve.add(series, is_delta=is_delta)
