"""Config: the resolved configuration, whole, as it was stored."""

from html import escape

import streamlit as st

from dashboard import markup
from dashboard.run_yaml import to_yaml
from dashboard.views import missing
from dashboard.views.area import RunArea
from lagoon.controls import PAUSED
from lagoon.sizes import in_words


def show(area: RunArea) -> None:
    """YAML to copy or download, and the checkpoints it led to."""
    detail = area.detail
    left, right = st.columns([3, 2], gap="medium")
    with left, st.container(key="panel_config"):
        st.html(markup.heading("Resolved configuration", "With every default filled in"))
        if _was_changed(area):
            words = "Some of it was changed while the run went on."
            where = "Here is what it was made with; the tab Controls has the changes."
            st.html(markup.notice(words, where))
        st.code(to_yaml(detail["config"]), language="yaml")
    with right, st.container(key="panel_checkpoints"):
        st.html(markup.heading("Checkpoints", "Model folders in Hugging Face format"))
        if thinned := missing.notice(detail, "checkpoints"):
            st.html(thinned)
        if detail["checkpoints"]:
            rows = [
                (
                    f"{item['step']} {markup.chip('final', 'good') if item['is_final'] else ''} "
                    f"{markup.chip('best so far', 'good') if item['is_best'] else ''}",
                    in_words(item["num_bytes"]) if item["num_bytes"] else "–",
                    f"<code>{escape(item['path'])}</code>",
                )
                for item in detail["checkpoints"]
            ]
            st.html(markup.table(("step", "size", "where"), rows))
        else:
            st.html(
                markup.notice(
                    "None saved yet.",
                    "They come with evaluations, and at the end.",
                )
            )


def _was_changed(area: RunArea) -> bool:
    """Whether the run goes, or went, by other settings than those; a pause is none of them."""
    changes = area.controls_of_run["changes"]
    return any(each["state"] == "applied" and {*each["after"]} != {PAUSED} for each in changes)
