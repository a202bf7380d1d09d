"""The colours of Lagoon, once: pages, charts and Streamlit's own widgets take them from here."""

from lagoon.status import RunStatus

DEEP = "#0b2f40"
"""The deep water of the sidebar and of headings."""
TEAL = "#0e8388"
"""The lagoon itself: primary actions, first line of a chart."""
INK = "#17323f"
MUTED = "#5b7480"
LINE = "#dce6e9"
PAPER = "#f5f9fa"
CARD = "#ffffff"
CORAL = "#d9512c"

SERIES = (
    TEAL,
    "#2b5c9e",
    "#e07a3f",
    "#7a5ea8",
    "#c9a227",
    "#4f9d69",
    "#c25b86",
    "#6b7f8a",
)
"""Colours of the lines of a chart, told apart by the colour-blind as well as eight can be."""

WATER = ("#f2f8f9", "#cfe8e8", "#94cfcf", "#4ba9ac", "#0e8388", "#0a5d70", "#0b2f40")
"""From shallow to deep: counts of a heat map."""

STATUS_COLORS = {
    RunStatus.QUEUED: ("#eef2f4", "#526a76"),
    RunStatus.STARTING: ("#e2eefb", "#2560a8"),
    RunStatus.RUNNING: ("#d9f2ec", "#0a6e63"),
    RunStatus.STOPPING: ("#fdf0d9", "#8a5a06"),
    RunStatus.FINISHED: ("#dfeaf3", "#123f63"),
    RunStatus.STOPPED: ("#ece8e1", "#665540"),
    RunStatus.FAILED: ("#fde5de", "#a8330f"),
}
"""Background and text of a status pill."""


def series_color(index: int) -> str:
    """The colour of the ``index``-th line; colours repeat after the eighth."""
    return SERIES[index % len(SERIES)]
