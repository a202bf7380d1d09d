"""The right side of the launch page: what is sent, the check, and the sending."""

import streamlit as st

from dashboard import markup, trouble
from dashboard.client import ApiError, ApiProblem
from dashboard.draft import Draft, sentence
from dashboard.run_yaml import to_yaml
from dashboard.session import Site


def show(site: Site, draft: Draft, experiment_id: str | None, *, is_readable: bool) -> None:
    """Draw the YAML with the two buttons above it."""
    with st.container(key="send_buttons", horizontal=True):
        check = st.button("Check", icon=":material/fact_check:", disabled=not is_readable)
        launch = st.button(
            "Launch",
            icon=":material/rocket_launch:",
            type="primary",
            disabled=not is_readable or not draft.name,
        )
    if launch:
        _launch(site, draft, experiment_id)
    elif check:
        _check(site, draft)
    _verdict(draft)
    st.html(markup.heading("What is sent", "Exactly this, and nothing else"))
    st.code(to_yaml(draft.config), language="yaml", wrap_lines=True)


def _check(site: Site, draft: Draft) -> None:
    try:
        site.api.validate(draft.config)
    except ApiProblem as error:
        _refused(site, draft, error)
    else:
        had_errors = bool(draft.errors)
        draft.errors, draft.checked = (), draft.config
        if had_errors:
            st.rerun()


def _launch(site: Site, draft: Draft, experiment_id: str | None) -> None:
    key = draft.idempotency_key(experiment_id)
    try:
        run = site.api.create_run(
            draft.name, draft.config, experiment_id=experiment_id, idempotency_key=key
        )
    except ApiProblem as error:
        _refused(site, draft, error)
    except ApiError as error:
        title, body = trouble.explanation(error, site.api)
        st.html(markup.notice(title, f"{body} Launching again cannot make a second run.", "bad"))
    else:
        draft.is_sent = True
        site.open("run", run=run["id"])


def _refused(site: Site, draft: Draft, error: ApiProblem) -> None:
    if error.errors:
        draft.errors, draft.checked = error.errors, draft.config
        # Once more, so that the fields above show what was said about them.
        st.rerun()
    title, body = trouble.explanation(error, site.api)
    st.html(markup.notice(title, body, "bad"))


def _verdict(draft: Draft) -> None:
    if draft.checked is None:
        return
    if draft.checked != draft.config:
        st.html(markup.notice("Changed since the last check.", kind="warn"))
    elif not draft.errors:
        st.html(markup.notice("This configuration can run.", kind="good"))
        return
    for error in draft.errors:
        st.html(markup.notice(", ".join(error.fields), sentence(error), "bad"))
