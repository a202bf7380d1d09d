"""Going on from a checkpoint: resume a run that ended early, or fork it into a new one."""

from __future__ import annotations

import copy
from html import escape

import streamlit as st

from dashboard import records, trouble
from dashboard.session import Site
from dashboard.words import plural
from lagoon.sizes import in_words
from lagoon.status import RunStatus

NEWEST = "newest"


def actions(site: Site, detail: records.RunDetail) -> None:
    """The buttons that the run's state allows."""
    if RunStatus(detail["status"]).is_resumable:
        with st.popover("Resume", icon=":material/resume:", help="Go on with a new attempt"):
            _resume(site, detail)
    if detail["checkpoints"]:
        with st.popover(
            "Fork", icon=":material/fork_right:", help="A new run that begins with a checkpoint"
        ):
            _fork(site, detail)


def _resume(site: Site, detail: records.RunDetail) -> None:
    known = _newest_first(detail)
    if not known:
        st.html(
            f"<p><b>{escape(detail['name'])}</b> has no checkpoint. It begins anew, from its "
            "starting model; what it has reported so far is superseded.</p>"
        )
    chosen = None
    if known:
        options: list[int | str] = [NEWEST, *(item["id"] for item in known)]
        labels = {item["id"]: _label(item) for item in known}
        picked = st.selectbox(
            "From",
            options,
            format_func=lambda id: labels.get(id, "the newest that is whole"),
            help="What the run did after that step stays in its record, marked as superseded.",
        )
        chosen = None if picked == NEWEST else int(picked)
    if st.button(f"Resume {detail['name']}", type="primary", key="confirm_resume"):
        with trouble.reported(site.api):
            site.api.resume_run(detail["id"], chosen)
            st.rerun()


def _fork(site: Site, detail: records.RunDetail) -> None:
    known = _newest_first(detail)
    labels = {item["id"]: _label(item) for item in known}
    chosen = st.selectbox("Begins with", list(labels), format_func=labels.__getitem__)
    name = st.text_input("Name", value=f"{detail['name']}-fork")
    most = detail["config"]["budget"]["max_steps"]
    max_steps = st.number_input(
        "Steps in all", min_value=1, value=most, help="Those up to the checkpoint are counted."
    )
    st.caption(
        "The rest of its configuration is that of this run as it is now; the run stays as it is. "
        "Its training time begins at 0."
    )
    if st.button(f"Fork {detail['name']}", type="primary", key="confirm_fork"):
        with trouble.reported(site.api):
            config = _present(site, detail)
            config["budget"]["max_steps"] = int(max_steps)
            fork = site.api.fork_run(detail["id"], chosen, name, config)
            site.open("run", run=fork["id"])


def _present(site: Site, detail: records.RunDetail) -> records.Config:
    """The run's configuration, with what was changed while it went on."""
    config = copy.deepcopy(detail["config"])
    values = site.api.controls(detail["id"])["values"] if detail["num_changes"] else {}
    for path, value in values.items():
        section, _, name = path.partition(".")
        if name:  # the pause is not in it
            config[section][name] = value
    return config


def _newest_first(detail: records.RunDetail) -> list[records.Checkpoint]:
    return detail["checkpoints"][::-1]


def _label(item: records.Checkpoint) -> str:
    notes = [f"step {item['step']}"]
    notes += ["the best so far"] if item["is_best"] else []
    notes += ["its last weights"] if item["is_final"] else []
    notes += [in_words(item["num_bytes"])] if item["num_bytes"] else []
    if item["attempt"] > 1:
        notes.append(f"attempt {item['attempt']}")
    return ", ".join(notes)


def lineage(detail: records.RunDetail) -> str:
    """How the run came to where it is, in a few words; empty for a first attempt."""
    words = []
    if detail["parent_run_id"]:
        words.append(f"a fork of {detail['parent_run_id']} at step {detail['parent_step']}")
    restarts = sum(attempt["is_restart"] for attempt in detail["attempts"])
    if restarts:
        words.append(plural(restarts, "restart"))
    newest = detail["attempts"][-1] if detail["attempts"] else None
    if newest and newest["number"] > 1 and newest["resumed_step"] is not None:
        words.append(f"went on from step {newest['resumed_step']}")
    return ", ".join(words)
