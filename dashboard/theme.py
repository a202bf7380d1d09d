"""How pages look beyond Streamlit's own theme: the style sheet, the mark, the page title."""

from pathlib import Path

import streamlit as st

STYLE = Path(__file__).with_name("style.css")
MARK = Path(__file__).with_name("mark.svg")


def configure() -> None:
    """Set up the page; the first thing the script does."""
    st.set_page_config(
        page_title="Lagoon", page_icon=str(MARK), layout="wide", initial_sidebar_state=216
    )
    st.html(STYLE)
    st.logo(str(MARK), size="large")
