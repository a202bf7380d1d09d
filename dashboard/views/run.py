"""The run's page: its head, a stop button, and one open tab. Each part refreshes by itself.

::

    head    (every 2 s, see below)   status, reason, progress, figures
    actions (never by timer)         pause, stop, clone
    switch  (never by timer)         tab and axis, both in the URL
    tab     (every 2 s, see below)   only the open one asks the API for anything

The timers go on until the run is over and none of its processes is left.
"""

from collections.abc import Callable

import streamlit as st

from dashboard import markup, trouble
from dashboard.axes import Axis
from dashboard.session import Site
from dashboard.views import run_end, run_head
from dashboard.views.area import RunArea
from dashboard.views.axis_switch import axis_switch
from dashboard.views.tabs import (
    config,
    controls,
    drift,
    events,
    evolution,
    learning,
    log,
    overview,
    pool,
    staleness,
    trajectories,
)
from dashboard.views.url_choice import url_choice
from dashboard.watch import RunWatch

REFRESH_SECONDS = 2.0

TABS: dict[str, tuple[str, Callable[[RunArea], None]]] = {
    "overview": ("Overview", overview.show),
    "staleness": ("Staleness", staleness.show),
    "pool": ("Pool", pool.show),
    "drift": ("Drift", drift.show),
    "es": ("Sigma / ES", evolution.show),
    "learning": ("Learning", learning.show),
    "trajectories": ("Trajectories", trajectories.show),
    "controls": ("Controls", controls.show),
    "config": ("Config", config.show),
    "logs": ("Logs", log.show),
    "events": ("Events", events.show),
}
WITH_AXIS = {"overview", "staleness", "pool", "drift", "es", "learning"}


def show(site: Site) -> None:
    """Draw the run the URL names."""
    run_id = st.query_params.get("run", "")
    if not run_id:
        st.html(markup.empty("Which run?", "Choose one from the list of experiments."))
        site.link("experiments", "All experiments")
        return
    watch = _watch(run_id)
    detail = watch.refresh(site.api)
    st.set_page_config(page_title=f"{detail['name']} · Lagoon")
    phase = run_end.phase(detail), detail["is_paused"]
    area = RunArea(site, watch)
    every = None if phase[0] == "over" else REFRESH_SECONDS
    run_head.way_back(site, detail)
    left, right = st.columns([5, 2], vertical_alignment="top")
    with right:
        run_head.actions(site, detail)
    with left:
        _live(site, "title", every, lambda: run_head.title(area, drawn=phase))
    _live(site, "figures", every, lambda: run_head.figures(area))
    with st.container(key="switches", horizontal=True, vertical_alignment="bottom"):
        tab = url_choice("tab", {name: title for name, (title, _) in TABS.items()}, "Tab")
        axis = axis_switch() if tab in WITH_AXIS else Axis.STEP
    chosen = trajectories.controls() if tab == "trajectories" else {}
    if tab == "controls":
        controls.form(site, detail)
    shown = RunArea(site, watch, axis, chosen)
    _live(site, f"tab_{tab}", every, lambda: TABS[tab][1](shown))


def _watch(run_id: str) -> RunWatch:
    held: RunWatch | None = st.session_state.get("_watched")
    if held is None or held.run_id != run_id:
        held = RunWatch(run_id)
        st.session_state["_watched"] = held
    return held


def _live(site: Site, key: str, every: float | None, draw: Callable[[], None]) -> None:
    @st.fragment(run_every=every, key=key)
    def part() -> None:
        with trouble.reported(site.api):
            draw()

    part()
