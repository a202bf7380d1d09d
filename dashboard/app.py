"""The dashboard's script: theme, viewer, navigation. Run by ``dashboard.serve``."""

import os

import streamlit as st

from dashboard import navigation, session, theme
from dashboard.settings import Settings


@st.cache_resource
def read_settings() -> Settings:
    """The settings, read and said once for all viewers; none of them is a secret."""
    settings = Settings.from_environment(os.environ)
    print(settings, flush=True)  # noqa: T201  the dashboard's log is its output
    return settings


theme.configure()
try:
    settings = read_settings()
except ValueError as error:
    st.error(f"The dashboard was started with a setting that cannot work: {error}.")
    st.stop()
navigation.show(session.current_api(settings), settings, session.current_zone())
