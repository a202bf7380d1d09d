"""What every part of the run page is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go
import streamlit as st

from dashboard import charts, markup, records
from dashboard.axes import Axis, Ruler
from dashboard.session import Site
from dashboard.views.axis_switch import ruler_for
from dashboard.watch import Curve, RunWatch
from dashboard.words import parse_time
from lagoon.metrics import Metric

LONGEST_MARK = 24
"""Characters that fit along a rule of a chart."""


@dataclass(frozen=True, slots=True)
class RunArea:
    """A run as one part of its page sees it."""

    site: Site
    watch: RunWatch
    axis: Axis = Axis.STEP
    controls: dict[str, str] = field(default_factory=dict)
    """What the viewer chose in the widgets above the part, outside its timer."""

    @property
    def detail(self) -> records.RunDetail:
        """The run as it was when this tick began."""
        if self.watch.detail is None:
            return self.watch.refresh(self.site.api)
        return self.watch.detail

    @property
    def has_trainer(self) -> bool:
        """Whether the run learns by gradients: an evolution has no trainer."""
        return self.detail["config"].get("trainer") is not None

    @property
    def ruler(self) -> Ruler:
        """Where the run's steps lie on the chosen axis."""
        return ruler_for(self.watch, self.site.api, self.axis)

    @property
    def controls_of_run(self) -> records.Controls:
        """The settings that may be changed, and the changes so far; nothing is asked while there
        are none."""
        detail, api = self.detail, self.site.api
        if not detail["num_changes"]:
            return {"values": {}, "changes": []}
        return self.watch.kept("controls", lambda: api.controls(detail["id"]))

    def marks(self, drawn: charts.Chart) -> list[charts.Mark]:
        """Where settings were changed, for a chart over the chosen axis."""
        ruler = self.ruler
        is_over_steps = drawn.x_title == Axis.STEP.caption  # counts have no time of their own
        if not is_over_steps and drawn.x_title != ruler.title:  # it counts something else
            return []
        found: dict[float, list[records.Change]] = {}
        for change in self.controls_of_run["changes"]:
            version, moment = change["version"], parse_time(change["applied_at"])
            if change["state"] == "applied" and version is not None and moment is not None:
                at = ruler.place_moment(version, moment.timestamp())
                x = float(version) if is_over_steps else at
                found.setdefault(x, []).append(change)
        return [_mark(x, changes) for x, changes in found.items()]

    def curves(self, metrics: Iterable[Metric]) -> list[Curve]:
        """Series of these metrics, up to date."""
        return self.watch.curves(self.site.api, metrics)

    def tail(self, metrics: Sequence[Metric], num_steps: int) -> list[Curve | None]:
        """The series of these metrics, without gaps in their last steps."""
        return self.watch.tail(self.site.api, metrics, num_steps)

    def curve(self, metric: Metric, **labels: str) -> Curve | None:
        """The series of one metric."""
        return self.watch.curve(self.site.api, metric, **labels)


def _mark(x: float, changes: Sequence[records.Change]) -> charts.Mark:
    """What was changed there: in words where they are short, else by the changes' numbers."""
    words = ", ".join(change["words"] for change in changes)
    numbers = ", ".join(str(change["number"]) for change in changes)
    short = f"{'change' if len(changes) == 1 else 'changes'} {numbers}"
    text = words if len(words) <= LONGEST_MARK else short
    return charts.Mark(x, text, words)


def panel(
    area: RunArea, title: str, key: str, draw: Callable[[], charts.Drawing], note: str = ""
) -> None:
    """A titled card with a chart in it, or a line saying that there is nothing yet.

    The chart is drawn anew only when the run has moved on or the axis was switched.
    """
    with st.container(key=f"panel_{key}"):
        if title:
            st.html(markup.heading(title, note))
        show_chart(area, key, draw)


def show_chart(area: RunArea, key: str, draw: Callable[[], charts.Drawing]) -> None:
    """The chart alone; the figure is kept between ticks."""

    def finished() -> go.Figure | None:
        drawn = draw()
        return drawn.figure(area.marks(drawn)) if drawn else None

    figure = area.watch.kept(f"chart {key} {area.axis}", finished)
    if figure is None:
        st.html(markup.notice("No points yet."))
    else:
        st.plotly_chart(figure, key=f"chart_{key}", theme=None, config=charts.CONFIG)
