"""Logs: the tail of the driver's log."""

import streamlit as st

from dashboard import markup, records
from dashboard.views import missing
from dashboard.views.area import RunArea
from dashboard.words import day_time

MAX_LINES = 1000


def show(area: RunArea) -> None:
    """The newest lines, read on from the last one seen."""
    lines = tail(area)
    if thinned := missing.notice(area.detail, "log_lines"):
        st.html(thinned)
    if not lines and not thinned:
        st.html(markup.empty("No log yet.", "The driver writes its first line when it starts."))
        return
    with st.container(key="panel_log"):
        st.html(markup.heading("Driver log", f"The newest {len(lines)} lines"))
        text = "\n".join(
            f"{day_time(line['at'], area.site.zone)}  {line['line']}" for line in lines
        )
        with st.container(height=560, border=False, autoscroll=True):
            st.code(text, language="log", wrap_lines=True)


def tail(area: RunArea) -> list[records.LogLine]:
    """The remembered lines with the new ones behind them."""
    held: tuple[str, int, list[records.LogLine]] = st.session_state.get("_log", ("", 0, []))
    run_id, after, lines = held
    if run_id != area.watch.run_id:
        after, lines = 0, []
    page = area.site.api.log(area.watch.run_id, after=after if lines else None)
    lines = [*lines, *page["items"]][-MAX_LINES:]
    after = page["next_after"] if page["items"] else after
    st.session_state["_log"] = (area.watch.run_id, after, lines)
    return lines
