"""The launch page: begin from a preset or a run, change what you like, see exactly what is sent."""

from html import escape

import streamlit as st

from dashboard import markup, records
from dashboard.client import ApiProblem
from dashboard.draft import Draft, first_config
from dashboard.session import Site, remembered
from dashboard.views import launch_form, launch_send

NEW = "Default experiment"


def show(site: Site) -> None:
    """Draw the page."""
    catalogue = remembered("catalogue", site.api.catalogue)
    presets = remembered("presets", site.api.presets)
    draft = _draft(site, catalogue, presets)
    st.html('<h1 class="lg-title">Launch a run</h1>')
    _presets(draft, presets)
    experiment_id = _names(site, draft)
    left, right = st.columns([8, 5], gap="large")
    with left:
        is_readable = launch_form.show(site, draft, catalogue)
    with right, st.container(key="sending"):
        launch_send.show(site, draft, experiment_id, is_readable=is_readable)


def _draft(site: Site, catalogue: records.Catalogue, presets: list[records.Preset]) -> Draft:
    """The draft of this browser session; a new one after the last was sent."""
    held: Draft | None = st.session_state.get("_draft")
    clone = st.query_params.get("clone")
    if held is None or held.is_sent:
        if presets:
            first = presets[0]
            held = Draft(f"preset:{first['name']}", first["name"], first["config"])
        else:
            held = Draft("", "run", first_config(catalogue))
    if clone and held.source != f"clone:{clone}":
        try:
            run = site.api.run(clone)
            held.replace(f"clone:{clone}", f"{run['name']}-again", run["config"])
        except ApiProblem as error:
            st.html(markup.notice(f"Run {clone} cannot be cloned.", str(error), "bad"))
    st.session_state["_draft"] = held
    return held


def _presets(draft: Draft, presets: list[records.Preset]) -> None:
    if not presets:
        return
    st.html(markup.heading("Start from", "A preset fills in everything below"))
    with st.container(key="presets", horizontal=True, gap="small"):
        for preset in presets:
            is_chosen = draft.source == f"preset:{preset['name']}"
            chosen = "chosen" if is_chosen else "free"
            with st.container(key=f"preset_{chosen}_{preset['name']}", width=300):
                st.html(
                    f'<div class="lg-tile"><h3>{escape(preset["title"])}</h3>'
                    f"<p>{escape(preset['description'])}</p></div>"
                )
                if st.button(f"Use {preset['title']}", key=f"use_{preset['name']}"):
                    if "clone" in st.query_params:
                        del st.query_params["clone"]
                    draft.replace(f"preset:{preset['name']}", preset["name"], preset["config"])
                    st.rerun()


def _names(site: Site, draft: Draft) -> str | None:
    experiments = {e["id"]: e["title"] for e in site.api.experiments()}
    options = ["", *experiments]
    asked = st.query_params.get("experiment", "")
    left, right = st.columns([8, 5], gap="large")
    with left:
        draft.name = st.text_input(
            "Run name", draft.name, key=f"name.{draft.version}", max_chars=120
        ).strip()
    with right:
        chosen = st.selectbox(
            "Experiment",
            options,
            options.index(asked) if asked in options else 0,
            format_func=lambda key: experiments.get(key, NEW),
            help="The page on which the run's curve is drawn over its siblings'.",
        )
    return chosen or None
