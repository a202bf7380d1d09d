"""Storage: what runs take, the largest first; for an admin the home as a whole."""

from html import escape
from typing import Literal

import streamlit as st

from dashboard import markup, records
from dashboard.session import Site
from dashboard.words import plural
from lagoon.sizes import in_words

Kind = Literal["checkpoint_bytes", "trajectory_bytes", "log_bytes", "metric_bytes", "spool_bytes"]
KINDS: tuple[tuple[Kind, str, str], ...] = (
    ("checkpoint_bytes", "Checkpoints", "weights in the home folder"),
    ("trajectory_bytes", "Trajectories", "readable summaries"),
    ("log_bytes", "Logs", "lines of drivers"),
    ("metric_bytes", "Metrics", "points and histograms"),
    ("spool_bytes", "Spools", "events on their way, and the newest sent"),
)


def show(site: Site) -> None:
    """Draw the page."""
    found = site.api.storage()
    st.html('<h1 class="lg-title">Storage</h1>')
    if not found["runs"]:
        st.html(markup.empty("Nothing here takes room.", "Runs appear here as they report."))
        return
    st.html(_cards(found))
    st.html(markup.heading("Runs", _note(found)))
    st.html(_table(found["runs"]))


def _cards(found: records.Storage) -> str:
    total, home = found["total"], found["home"]
    cards = [markup.card("All runs", in_words(total["total_bytes"]), _count(found))]
    if home is not None:
        free = in_words(home["disk_free_bytes"])
        cards.append(markup.card("Disk free", free, f"of {in_words(home['disk_total_bytes'])}"))
        cards.append(
            markup.card("Database", in_words(home["database_bytes"]), "tables and indexes")
        )
    for name, label, note in KINDS:
        size = in_words(total[name])
        if name == "checkpoint_bytes" and home and home["checkpoint_quota_bytes"] is not None:
            note = f"of {in_words(home['checkpoint_quota_bytes'])} allowed"
        cards.append(markup.card(label, size, escape(note)))
    return markup.cards(cards)


def _count(found: records.Storage) -> str:
    whose = "of everybody" if found["home"] is not None else "of yours"
    return f"{plural(found['num_runs'], 'run')} {whose}"


def _note(found: records.Storage) -> str:
    shown = len(found["runs"])
    rest = f"The largest {shown} of {found['num_runs']}. " if shown < found["num_runs"] else ""
    return f"{rest}Of the database about what the rows take; of files what is on the API's machine."


def _table(runs: list[records.RunSizes]) -> str:
    header = ("run", "by", "status", *(label.lower() for _, label, _ in KINDS), "all")
    rows = [
        (
            f'<a href="run?run={escape(run["run_id"])}" target="_self">{escape(run["name"])}</a> '
            f"<code>{escape(run['run_id'])}</code>",
            escape(run["owner"]),
            markup.pill(run["status"]),
            *(in_words(run[name]) for name, _, _ in KINDS),
            f"<b>{in_words(run['total_bytes'])}</b>",
        )
        for run in runs
    ]
    return markup.table(header, rows, numeric=range(3, 4 + len(KINDS)))
