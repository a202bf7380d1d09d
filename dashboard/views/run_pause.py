"""Pausing a run that goes on, and lifting the pause."""

from __future__ import annotations

from uuid import uuid4

import streamlit as st

from dashboard import markup, records, trouble
from dashboard.session import Site
from lagoon.controls import PAUSED
from lagoon.status import RunStatus


def goes_on(detail: records.RunDetail) -> bool:
    """Whether anything that is changed of the run can still have an effect."""
    return detail["desired"] == "run" and not RunStatus(detail["status"]).is_terminal


def actions(site: Site, detail: records.RunDetail) -> None:
    """The button that fits the run's state."""
    if not goes_on(detail):
        return
    if detail["is_paused"]:
        asked = st.button("Go on", icon=":material/play_circle:", help="Lift the pause")
    else:
        asked = st.button(
            "Pause",
            icon=":material/pause_circle:",
            help="After the update in progress: nothing is sampled or trained on, and what is in "
            "flight is kept. The run keeps its slots.",
        )
    if asked:
        with trouble.reported(site.api):
            wanted = {PAUSED: not detail["is_paused"]}
            site.api.change_run(detail["id"], wanted, uuid4().hex)
            st.rerun()


def notice(detail: records.RunDetail) -> str:
    """What a pause means, while there is one or one was asked for; else nothing."""
    if not goes_on(detail) or not detail["attempts"]:
        return ""
    is_paused = detail["attempts"][-1]["activity"] == "paused"
    if detail["is_paused"] and is_paused:
        return markup.notice(
            "Paused.",
            "Nothing is sampled or trained on, and no time is counted. Trajectories in flight are "
            "kept, with their tokens. It holds its slots until it goes on or is stopped.",
            "warn",
        )
    if detail["is_paused"]:
        words = "A pause was asked for."
        return markup.notice(words, "It begins after the update or evaluation in progress.", "warn")
    return markup.notice("It is about to go on.", "", "warn") if is_paused else ""
