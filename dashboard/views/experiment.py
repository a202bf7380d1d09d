"""An experiment's page: its notes, its runs, their curves over each other."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import charts, markup, palette, records, trouble
from dashboard.axes import Axis, Ruler
from dashboard.client import Api
from dashboard.session import Site
from dashboard.views import run_rows
from dashboard.views.axis_switch import axis_switch, ruler_for
from dashboard.watch import Curve, RunWatch
from dashboard.words import plural, short_time
from lagoon.metrics import HELDOUT_SUCCESS, REWARD_MEAN, Metric
from lagoon.status import RunStatus

REFRESH_SECONDS = 4.0
MAX_LISTED = 100
MAX_OVERLAID = 12
"""Runs drawn over each other; more are told apart by nobody."""


def show(site: Site) -> None:
    """Draw the experiment the URL names."""
    experiment_id = st.query_params.get("experiment", "")
    if not experiment_id:
        st.html(markup.empty("Which experiment?", "Choose one from the list of experiments."))
        site.link("experiments", "All experiments")
        return
    experiment = site.api.experiment(experiment_id)
    runs = _runs(site.api, experiment_id)
    st.set_page_config(page_title=f"{experiment['title']} · Lagoon")
    _head(site, experiment)
    if not runs:
        st.html(markup.empty("No runs yet.", "Launch the first run of this experiment."))
        return
    axis = axis_switch()
    is_live = any(not RunStatus(run["status"]).is_terminal for run in runs)

    @st.fragment(run_every=REFRESH_SECONDS if is_live else None)
    def overlay() -> None:
        with trouble.reported(site.api):
            _curves_and_rows(site, _runs(site.api, experiment_id), axis, experiment["num_runs"])

    overlay()


def _runs(api: Api, experiment_id: str) -> list[records.RunSummary]:
    return api.runs(experiment_id=experiment_id, limit=MAX_LISTED)


def _head(site: Site, experiment: records.Experiment) -> None:
    with st.container(key="page_head", horizontal=True, vertical_alignment="center"):
        about = f"{plural(experiment['num_runs'], 'run')} · {experiment['owner']} · "
        about += short_time(experiment["created_at"], site.zone)
        st.html(
            f'<h1 class="lg-title">{escape(experiment["title"])}<small>{escape(about)}</small></h1>'
        )
        if st.button("Edit notes", icon=":material/edit_note:"):
            _edit(site, experiment)
        if st.button("Launch a run here", icon=":material/rocket_launch:", type="primary"):
            site.open("launch", experiment=experiment["id"])
    if experiment["notes"].strip():
        with st.container(key="notes"):
            st.markdown(experiment["notes"])


@st.dialog("Edit experiment", width="large")
def _edit(site: Site, experiment: records.Experiment) -> None:
    title = st.text_input("Title", experiment["title"], max_chars=120)
    notes = st.text_area("Notes (Markdown)", experiment["notes"], height=280)
    if st.button("Save", type="primary", disabled=not title.strip()):
        with trouble.reported(site.api):
            site.api.update_experiment(experiment["id"], title.strip(), notes)
            st.rerun()


def _curves_and_rows(
    site: Site, runs: Sequence[records.RunSummary], axis: Axis, num_runs: int
) -> None:
    oldest_first = sorted(runs, key=lambda run: run["created_at"])
    # Colours go by age, so that a new run does not repaint the others.
    colors = {run["id"]: palette.series_color(i) for i, run in enumerate(oldest_first)}
    drawn = [run for run in runs if run["step"] or run["last_heldout_success"] is not None]
    shown = drawn[:MAX_OVERLAID]
    watches = _watches(site.api, shown)
    left, right = st.columns(2, gap="medium")
    panels = ((left, HELDOUT_SUCCESS, "Held-out success"), (right, REWARD_MEAN, "Mean reward"))
    for column, metric, title in panels:
        with column, st.container(key=f"panel_{metric.panel}"):
            st.html(markup.heading(title))
            _overlay(site.api, shown, watches, metric, axis, colors)
    if len(drawn) > MAX_OVERLAID:
        st.caption(f"The newest {MAX_OVERLAID} of {len(drawn)} runs are drawn.")
    st.html(markup.heading("Runs"))
    if num_runs > len(runs) >= MAX_LISTED:
        st.caption(f"The newest {len(runs)} of {num_runs} are listed.")
    run_rows.show(site, runs, colors)


def _watches(api: Api, runs: Sequence[records.RunSummary]) -> dict[str, RunWatch]:
    held: dict[str, RunWatch] = st.session_state.setdefault("_overlaid", {})
    kept = {run["id"]: held.get(run["id"], RunWatch(run["id"])) for run in runs}
    for run in runs:
        if (watch := kept[run["id"]]).detail is None or watch.detail["cursor"] != run["cursor"]:
            watch.refresh(api)
    st.session_state["_overlaid"] = kept
    return kept


def _overlay(
    api: Api,
    runs: Sequence[records.RunSummary],
    watches: dict[str, RunWatch],
    metric: Metric,
    axis: Axis,
    colors: dict[str, str],
) -> None:
    members = []
    title = axis.caption
    for run in runs:
        watch = watches[run["id"]]
        ruler = ruler_for(watch, api, axis)
        curve = watch.curve(api, metric)
        if curve:
            members.append(_line(curve, ruler, run["name"], colors[run["id"]]))
            title = ruler.title
    if not members:
        st.html(markup.notice("No points yet."))
        return
    drawn = charts.chart(title, metric.unit, height=320, percent=metric is HELDOUT_SUCCESS)
    charts.lines(drawn, members, hover=".1%" if metric is HELDOUT_SUCCESS else ".3f", legend=True)
    st.plotly_chart(drawn.figure(), key=f"overlay_{metric.name}", theme=None, config=charts.CONFIG)


def _line(curve: Curve, ruler: Ruler, name: str, color: str) -> charts.Line:
    return charts.line_of(curve, ruler, name, color, markers=len(curve.values) < 40)
