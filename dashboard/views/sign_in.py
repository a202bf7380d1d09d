"""The sign-in page.

Only the API can set the HttpOnly cookie, so the form gets a one-time ticket from it and sends the
browser there; the API answers with the cookie and sends the browser back here.
"""

import json
from urllib.parse import urlencode, urlsplit

import streamlit as st

from dashboard import markup, trouble
from dashboard.client import PREFIX, Api, ApiError, NotSignedIn
from dashboard.settings import Settings


def show(api: Api, settings: Settings) -> None:
    """Ask for name and password."""
    with st.container(key="door"):
        st.html(
            '<div class="lg-brand">Lagoon</div><p class="lg-tagline">Post-training of language '
            "agents, asynchronous and evolutionary, watched live.</p>"
        )
        if st.query_params.get("signin") == "expired":
            st.html(
                markup.notice(
                    "That sign-in link was used or has expired.",
                    "Each link works once, for ten minutes. Sign in below; or, on the machine that "
                    "Lagoon runs on, type lagoon up (or make run) again in another terminal: it "
                    "prints a new link.",
                    "warn",
                )
            )
        with st.form("sign_in", border=False):
            username = st.text_input("User name", autocomplete="username")
            password = st.text_input("Password", type="password", autocomplete="current-password")
            pressed = st.form_submit_button("Sign in", type="primary", width="stretch")
        if pressed:
            _enter(api, settings, username, password)


def _enter(api: Api, settings: Settings, username: str, password: str) -> None:
    try:
        ticket = api.sign_in_ticket(username, password)
    except NotSignedIn:
        st.html(markup.notice("User name and password do not match.", kind="bad"))
    except ApiError as error:
        title, body = trouble.explanation(error, api)
        st.html(markup.notice(title, body, "bad"))
    else:
        query = {key: value for key, value in st.query_params.items() if key != "signin"}
        back = return_url(settings.dashboard_url, st.context.url, query)
        _send_browser(ticket_url(settings.public_api_url, ticket, back))


def ticket_url(public_api_url: str, ticket: str, back: str) -> str:
    """Where the browser exchanges its ticket for the cookie."""
    return f"{public_api_url}{PREFIX}/signin?{urlencode({'ticket': ticket, 'next': back})}"


def return_url(dashboard_url: str, shown_url: str | None, query: dict[str, str]) -> str:
    """The page that was asked for, on the dashboard's own origin."""
    path = urlsplit(shown_url or "").path.rstrip("/")
    suffix = f"?{urlencode(query)}" if query else ""
    return f"{dashboard_url}{path}{suffix}"


def _send_browser(url: str) -> None:
    # Escaped so that nothing in the address can end the script element.
    literal = json.dumps(url).replace("<", "\\u003c")
    st.html(f"<script>window.location.replace({literal});</script>", unsafe_allow_javascript=True)
    st.link_button("Continue", url, width="stretch")
