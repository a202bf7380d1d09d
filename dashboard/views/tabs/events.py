"""Events: what happened to the run, when, and why."""

from html import escape

import streamlit as st

from dashboard import markup, records
from dashboard.session import Site
from dashboard.views.area import RunArea
from dashboard.words import clock_time, elapsed, utc_time


def show(area: RunArea) -> None:
    """A timeline, newest first, and the attempts."""
    events = area.watch.kept("events", lambda: area.site.api.events(area.watch.run_id))
    left, right = st.columns([3, 2], gap="medium")
    with left, st.container(key="panel_events"):
        st.html(markup.heading("Timeline", "Every change of the run's state, with its reason"))
        items = "".join(_event(area.site, event) for event in reversed(events))
        st.html(f'<ol class="lg-timeline">{items}</ol>' if items else markup.notice("Nothing yet."))
    with right, st.container(key="panel_attempts"):
        st.html(markup.heading("Attempts", "Each try of the run on the cluster"))
        rows = [
            (
                str(attempt["number"]),
                markup.pill(attempt["status"]),
                elapsed(attempt["started_at"], attempt["ended_at"], area.site.now()),
                escape(attempt["reason"] or ""),
            )
            for attempt in area.detail["attempts"]
        ]
        st.html(markup.table(("no.", "status", "time", "reason"), rows, numeric=[0]))


def _event(site: Site, event: records.RunEvent) -> str:
    move = ""
    if event["to"]:
        before = f"{markup.pill(event['from'])} → " if event["from"] else ""
        move = before + markup.pill(event["to"])
    by = f" · by {escape(event['by'])}" if event["by"] else ""
    return (
        f"<li><div>{move or markup.chip(event['kind'].replace('_', ' '))}</div>"
        f"<p>{escape(event['reason'] or '')}</p>"
        f'<small title="{utc_time(event["at"])}">{clock_time(event["at"], site.zone)}{by}</small>'
        "</li>"
    )
