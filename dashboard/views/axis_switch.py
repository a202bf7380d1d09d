"""The switch of the horizontal axis, kept in the URL as ``x``."""

from dashboard.axes import Axis, Ruler
from dashboard.client import Api
from dashboard.views.url_choice import url_choice
from dashboard.watch import RunWatch
from dashboard.words import parse_time
from lagoon.metrics import TOTAL_SAMPLES, TOTAL_TOKENS

PROGRESS = {Axis.TRAJECTORIES: TOTAL_SAMPLES, Axis.TOKENS: TOTAL_TOKENS}


def axis_switch() -> Axis:
    """Let the viewer choose the axis; it is the URL's ``x``."""
    return Axis(url_choice("x", {str(axis): axis.choice for axis in Axis}, "Horizontal axis"))


def ruler_for(watch: RunWatch, api: Api, axis: Axis) -> Ruler:
    """Where this run's steps lie on ``axis``."""
    progress = watch.curve(api, PROGRESS[axis]) if axis in PROGRESS else None
    began = parse_time(watch.detail["started_at"]) if watch.detail else None
    return Ruler(axis, progress, began.timestamp() if began else None)
