"""Which pages there are, and who gets to see them."""

from collections.abc import Callable
from functools import partial
from html import escape
from zoneinfo import ZoneInfo

import streamlit as st

from dashboard import markup, session, trouble
from dashboard.client import Api, ApiError
from dashboard.session import Site, Visit
from dashboard.settings import Settings
from dashboard.views import experiment, experiments, launch, queue, run, sign_in, storage

BANNER_SECONDS = 15.0

View = Callable[[Site], None]

VIEWS: dict[str, tuple[View, str, str, bool]] = {
    "experiments": (experiments.show, "Experiments", ":material/stacks:", True),
    "launch": (launch.show, "Launch", ":material/rocket_launch:", True),
    "queue": (queue.show, "Queue", ":material/format_list_numbered:", True),
    "storage": (storage.show, "Storage", ":material/database:", True),
    "experiment": (experiment.show, "Experiment", ":material/science:", False),
    "run": (run.show, "Run", ":material/show_chart:", False),
}
"""Name in the URL: the page, its title, its icon, and whether the menu lists it."""


def show(api: Api, settings: Settings, zone: ZoneInfo, first: str = "experiments") -> None:
    """Draw the page the URL names; ``first`` when it names none."""
    visit = session.visit(api)
    pages: dict[str, st.Page] = {}
    for name, (view, title, icon, is_listed) in VIEWS.items():
        pages[name] = st.Page(
            partial(_draw, view, visit, pages, settings, zone),
            title=title,
            icon=icon,
            url_path=name,
            default=name == first,
            visibility="visible" if is_listed else "hidden",
        )
    st.navigation(list(pages.values()), position="sidebar" if visit.user else "hidden").run()


def _draw(
    view: View,
    visit: Visit,
    pages: dict[str, st.Page],
    settings: Settings,
    zone: ZoneInfo,
) -> None:
    if visit.trouble is not None:
        _wait_for_api(visit.api, visit.trouble)
    elif visit.user is None:
        sign_in.show(visit.api, settings)
    else:
        site = Site(visit.api, visit.user, zone, pages)
        _account(site)
        banner = st.container(key="banner")
        with trouble.reported(visit.api):
            view(site)
        with banner:
            # Asked for last: a part that is down answers slowly.
            st.fragment(trouble.platform_banner, run_every=BANNER_SECONDS)(visit.api)


def _account(site: Site) -> None:
    with st.sidebar, st.container(key="account"):
        st.html(
            f'<div class="lg-user">{escape(site.user["username"])}'
            f"<small>{escape(site.user['role'])} · times in {site.zone.key}</small></div>"
        )
        if st.button("Sign out", icon=":material/logout:", type="tertiary"):
            with trouble.reported(site.api):
                site.api.sign_out()
            st.rerun()


def _wait_for_api(api: Api, error: ApiError) -> None:
    title, body = trouble.explanation(error, api)

    @st.fragment(run_every=trouble.RETRY_SECONDS)
    def waiting() -> None:
        st.html(markup.notice(title, body, "bad"))
        if session.visit(api).trouble is None:
            st.rerun(scope="app")

    with st.container(key="door"):
        st.html('<div class="lg-brand">Lagoon</div>')
        waiting()
