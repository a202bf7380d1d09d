"""Runs in a list: one row each, the whole row a link to the run's page."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import markup, records
from dashboard.session import Site
from dashboard.words import elapsed, percent, short_time, utc_time
from lagoon.status import RunStatus


def show(site: Site, runs: Sequence[records.RunSummary], colors: dict[str, str]) -> None:
    """Draw ``runs`` in the given order; ``colors`` gives the dot of runs that a chart shows."""
    with st.container(key="run_rows", gap=None):
        for run in runs:
            with st.container(key=f"row_{run['id']}"):
                st.html(_row(site, run, colors.get(run["id"])))
                site.link("run", f"Open run {run['name']}", run=run["id"])


def _row(site: Site, run: records.RunSummary, color: str | None) -> str:
    dot = f'<i class="lg-dot" style="background:{color}"></i>' if color else ""
    control = markup.chip("control: shuffled rewards", "warn") if run["control"] != "none" else ""
    what = f"{run['method']} · {run['environment']} · {run['model']}"
    below = _progress(run) if RunStatus(run["status"]).is_active else escape(run["reason"] or "")
    created = run["created_at"]
    return (
        f'<div class="lg-row"><div class="lg-row-name">{dot}<b>{escape(run["name"])}</b> {control}'
        f"<small>{escape(what)}</small></div>"
        f'<div class="lg-row-status">{markup.pill(run["status"])}'
        f"{markup.condition(run['condition'])}<small>{below}</small></div>"
        f"<div>{_success(run)}<small>held-out success</small></div>"
        f"<div>{run['step']} / {run['max_steps']}<small>steps</small></div>"
        f"<div>{elapsed(run['started_at'], run['ended_at'], site.now())}<small>taken</small></div>"
        f'<div title="{utc_time(created)}">{short_time(created, site.zone)}'
        f"<small>by {escape(run['owner'])}</small></div></div>"
    )


def _progress(run: records.RunSummary) -> str:
    return markup.progress(run["step"], run["max_steps"], is_active=True)


def _success(run: records.RunSummary) -> str:
    first, last = run["first_heldout_success"], run["last_heldout_success"]
    if last is None:
        return "–"
    return f"{percent(first)} → {percent(last)}"
