"""When the API does not do what a page needs: a sentence in words in place of the page."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from dashboard import markup
from dashboard.client import Api, ApiError, ApiProblem, ApiUnreachable, NotFound, NotSignedIn

PARTS = {
    "postgres": "PostgreSQL, where everything is stored,",
    "broker": "The task queue (Redis or Valkey)",
    "ray": "Ray, which runs the training,",
    "worker": "The worker process",
}
RETRY_SECONDS = 5.0


@contextmanager
def reported(api: Api) -> Iterator[None]:
    """Say what is wrong where the content would have been; an ended session leads to sign-in."""
    try:
        yield
    except NotSignedIn:
        st.rerun(scope="app")
    except NotFound as error:
        st.html(markup.empty(*explanation(error, api)))
    except ApiError as error:
        title, body = explanation(error, api)
        st.html(markup.notice(title, body, "bad"))


def explanation(error: ApiError, api: Api) -> tuple[str, str]:
    """What failed, and whether anything is lost and what to do."""
    if isinstance(error, ApiUnreachable):
        return (
            str(error),
            "Runs that were going keep going, and what they report is kept until the API is "
            "back. Start Lagoon again, or check LAGOON_API_URL; this page retries by itself.",
        )
    if isinstance(error, NotFound):
        return (
            "There is nothing here, or it is not yours to see.",
            "The address may be mistyped, or it was deleted.",
        )
    problem = error if isinstance(error, ApiProblem) else ApiProblem(0, str(error))
    if problem.status >= 500:
        return _platform_trouble(problem, api)
    return problem.title, problem.detail


def _platform_trouble(problem: ApiProblem, api: Api) -> tuple[str, str]:
    failing = failing_parts(api)
    reference = f" Request {problem.request_id}." if problem.request_id else ""
    if failing:
        return (
            " ".join(failing),
            "Nothing that was stored is lost, and this page retries by itself." + reference,
        )
    return (
        "The API could not answer this.",
        f"{problem.detail or problem.title} Nothing was changed by looking.{reference}",
    )


def failing_parts(api: Api) -> list[str]:
    """One sentence for every part of the platform that ``/readyz`` says is down."""
    try:
        checks = api.readiness()["checks"]
    except (ApiError, KeyError):
        return []
    return [
        f"{PARTS.get(name, name)} is not available: {check['detail'] or 'no answer'}"
        for name, check in checks.items()
        # What cannot be known while another part is down is not news of its own.
        if not check["ok"] and not (check["detail"] or "").startswith("Not known")
    ]


def platform_banner(api: Api) -> None:
    """Say which part of the platform is down while the API itself answers; else nothing."""
    for sentence in failing_parts(api):
        st.html(
            markup.notice(
                sentence, "Pages can be read; runs may not start or move until it is back.", "warn"
            )
        )
