"""A choice that lives in the URL: what is chosen can be shared, and the back button works."""

from collections.abc import Mapping

import streamlit as st


def url_choice(name: str, options: Mapping[str, str], label: str) -> str:
    """Let the viewer choose one of ``options`` (URL value to title); the first is the default.

    The URL decides, so a link to another choice is honoured; an unknown value there is read as
    the default, and the default is not written into the URL.
    """
    default = next(iter(options))
    asked = st.query_params.get(name, default)
    key = f"url_{name}"
    st.session_state[key] = asked if asked in options else default

    def write() -> None:
        chosen = st.session_state[key]
        if chosen and chosen != default:
            st.query_params[name] = chosen
        elif name in st.query_params:
            del st.query_params[name]

    chosen = st.segmented_control(
        label,
        list(options),
        required=True,
        format_func=options.__getitem__,
        label_visibility="collapsed",
        key=key,
        on_change=write,
    )
    return chosen or default
