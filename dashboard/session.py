"""Who is looking: the viewer's token from the request's cookie, and what stands in their way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

import streamlit as st

from dashboard import records
from dashboard.client import Api, ApiError, NotSignedIn, open_connection
from dashboard.settings import Settings
from dashboard.words import zone_named

if TYPE_CHECKING:
    from streamlit.navigation.page import StreamlitPage

T = TypeVar("T")

CATALOGUE_SECONDS = 60.0
"""How long schema, catalogue and presets are reused within one browser session."""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything a page needs, handed to it as its one argument."""

    api: Api
    user: records.User
    zone: ZoneInfo
    pages: Mapping[str, StreamlitPage]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def open(self, page: str, **parameters: str) -> None:
        """Go to another page. Does not return."""
        st.switch_page(self.pages[page], query_params=parameters)

    def link(self, page: str, label: str, *, icon: str | None = None, **parameters: str) -> None:
        """A link to another page, with that page's icon unless told otherwise."""
        st.page_link(self.pages[page], label=label, icon=icon, query_params=parameters)


@dataclass(frozen=True, slots=True)
class Visit:
    """A viewer at the door: signed in, not signed in, or in front of an API that is down."""

    api: Api
    user: records.User | None
    trouble: ApiError | None


connection = st.cache_resource(max_entries=1, show_spinner=False)(open_connection)
"""One pool of connections for the process. It carries nobody's credentials."""


def current_api(settings: Settings) -> Api:
    """The API with this browser session's token; the same object until the token changes."""
    token = st.context.cookies.get(settings.session_cookie)
    held = st.session_state.get("_api")
    if held is None or held[0] != token:
        held = (token, Api(connection(settings.api_url), token))
        st.session_state["_api"] = held
    api: Api = held[1]
    return api


def current_zone() -> ZoneInfo:
    """The time zone of the viewer's browser."""
    return zone_named(st.context.timezone)


def visit(api: Api) -> Visit:
    """Ask the API who this is. A cookie of a session that has ended counts as none."""
    try:
        return Visit(api, api.me(), None)
    except NotSignedIn:
        return Visit(api, None, None)
    except ApiError as error:
        return Visit(api, None, error)


def remembered(name: str, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> T:
    """What ``read`` gave within the last minute in this browser session, and nobody else's."""
    kept = st.session_state.get(f"_kept_{name}")
    if kept is None or clock() - kept[0] > CATALOGUE_SECONDS:
        kept = (clock(), read())
        st.session_state[f"_kept_{name}"] = kept
    value: T = kept[1]
    return value
