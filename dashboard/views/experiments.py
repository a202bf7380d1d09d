"""The first page: experiments, and the newest runs of them all."""

from html import escape

import streamlit as st

from dashboard import markup, records, trouble
from dashboard.session import Site
from dashboard.views import run_rows
from dashboard.words import plural, short_time, utc_time
from lagoon.status import RunStatus

REFRESH_SECONDS = 4.0


def show(site: Site) -> None:
    """Draw the page."""
    experiments = site.api.experiments()
    runs = site.api.runs(limit=20)
    with st.container(key="page_head", horizontal=True, vertical_alignment="center"):
        st.html('<h1 class="lg-title">Experiments</h1>')
        if st.button("New experiment", icon=":material/add:"):
            _create(site)
        if st.button("Launch a run", icon=":material/rocket_launch:", type="primary"):
            site.open("launch")
    if not experiments and not runs:
        st.html(
            markup.empty(
                "Still water.",
                "Nothing has run here yet. Launch a run from a preset: it takes a minute to see "
                "the first points of its curve.",
            )
        )
        return
    _cards(site, experiments)
    st.html(markup.heading("Newest runs"))
    is_live = any(not RunStatus(run["status"]).is_terminal for run in runs)

    @st.fragment(run_every=REFRESH_SECONDS if is_live else None)
    def newest() -> None:
        with trouble.reported(site.api):
            run_rows.show(site, site.api.runs(limit=20), {})

    newest()


def _cards(site: Site, experiments: list[records.Experiment]) -> None:
    with st.container(key="experiment_cards", horizontal=True, gap="medium"):
        for experiment in experiments:
            with st.container(key=f"experiment_{experiment['id']}", width=340):
                st.html(_card(site, experiment))
                site.link("experiment", f"Open {experiment['title']}", experiment=experiment["id"])


def _card(site: Site, experiment: records.Experiment) -> str:
    lines = experiment.get("notes", "").strip().splitlines()
    notes = lines[0].lstrip("# ") if lines else "No notes yet."
    created = experiment["created_at"]
    return (
        f'<div class="lg-tile"><h3>{escape(experiment["title"])}</h3><p>{escape(notes)}</p>'
        f'<small title="{utc_time(created)}">{plural(experiment.get("num_runs", 0), "run")} · '
        f"{escape(experiment.get('owner', ''))} · {short_time(created, site.zone)}</small></div>"
    )


@st.dialog("New experiment")
def _create(site: Site) -> None:
    title = st.text_input("Title", max_chars=120)
    notes = st.text_area("Notes (Markdown)", height=120, placeholder="What is the question?")
    if st.button("Create", type="primary", disabled=not title.strip()):
        with trouble.reported(site.api):
            made = site.api.create_experiment(title.strip(), notes)
            site.open("experiment", experiment=made["id"])
