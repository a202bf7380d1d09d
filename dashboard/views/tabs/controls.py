"""Controls: what may be changed while the run goes on, and who has changed what and when."""

from __future__ import annotations

from html import escape
from uuid import uuid4

import streamlit as st

from dashboard import markup, records, trouble
from dashboard.forms import begins_with
from dashboard.session import Site
from dashboard.views.area import RunArea
from dashboard.views.method_of import may_be_empty, method_of
from dashboard.views.run_pause import goes_on
from dashboard.words import clock_time, title_of, utc_time
from lagoon.controls import PAUSED

CHIPS = {
    "pending": ("waits for the driver", "warn"),
    "applied": ("applied", "good"),
    "superseded": ("superseded", ""),
    "refused": ("refused", "bad"),
    "never": ("the run ended before", ""),
}
"""The states of a change, and how they are shown."""
LIMITS = {
    "rollout.max_concurrent": "An engine's batch holds up to twice what the attempt started with: "
    "of more episodes than that the others wait in the engine for their turn.",
}
"""What a change of a setting does not do."""


def form(site: Site, detail: records.RunDetail) -> None:
    """The settings as they are wanted, to be changed together; outside every timer."""
    if not goes_on(detail):
        return
    with trouble.reported(site.api):
        values = site.api.controls(detail["id"])["values"]
        with st.form("controls", border=True):
            st.html(markup.heading("Change", "From the next batch on, at a version that is noted"))
            shown = [path for path in values if path != PAUSED]
            given = {}
            for column, path in zip(st.columns(len(shown)), shown, strict=True):
                with column:
                    given[path] = _input(detail, path, values[path])
            if not st.form_submit_button("Change", type="primary"):
                return
        changed = {path: value for path, value in given.items() if value != values[path]}
        if not changed:
            st.html(markup.notice("Nothing was changed: the settings are as they were."))
            return
        site.api.change_run(detail["id"], changed, uuid4().hex)
        st.rerun()


def _input(detail: records.RunDetail, path: str, value: records.Value) -> int | float | None:
    """A field of its own for each present value, so that it shows that of others' changes."""
    name = path.rpartition(".")[2]
    step = 0.5 if isinstance(value, float) else 1
    optional = value is None or may_be_empty(method_of(detail["config"]), path)
    key = f"control {detail['id']} {path} {value}"
    found: int | float | None = st.number_input(
        title_of(name),
        value=begins_with(value, key, may_be_empty=optional),
        step=step,
        placeholder="none" if optional else None,
        key=key,
        help=_help(path, optional=optional),
    )
    return found


def _help(path: str, *, optional: bool) -> str:
    words = [*(["Empty: no bound."] if optional else []), LIMITS.get(path, "")]
    return ". ".join(part for part in (f"`{path}`", " ".join(words).strip()) if part)


def show(area: RunArea) -> None:
    """Every change, newest first: what, who, when, and what became of it."""
    changes = area.controls_of_run["changes"]
    with st.container(key="panel_changes"):
        st.html(markup.heading("Changes", "Those that were applied are rules on the curves"))
        if not changes:
            words = "Nothing was changed while the run went on."
            st.html(markup.notice(words))
            return
        header = ("no.", "change", "by", "asked for", "state", "attempt", "version", "since")
        rows = [_row(area.site, change) for change in reversed(changes)]
        st.html(markup.table(header, rows, numeric=[0, 5, 6]))


def _row(site: Site, change: records.Change) -> tuple[str, ...]:
    label, kind = CHIPS.get(change["state"], (change["state"], ""))
    return (
        str(change["number"]),
        escape(change["words"]),
        escape(change["requested_by"]),
        _moment(site, change["requested_at"]),
        markup.chip(label, kind, change["why"]),
        "–" if change["attempt"] is None else str(change["attempt"]),
        "–" if change["version"] is None else str(change["version"]),
        _moment(site, change["applied_at"]),
    )


def _moment(site: Site, moment: str | None) -> str:
    shown = escape(clock_time(moment, site.zone))
    return f'<span title="{utc_time(moment)}">{shown}</span>'
