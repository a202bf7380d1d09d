"""The head of the run page: name, status with its reason, progress, figures; stop and clone."""

import math
from html import escape

import streamlit as st

from dashboard import markup, records, trouble
from dashboard.client import ApiError, ApiUnreachable, Unavailable
from dashboard.session import Site, remembered
from dashboard.views import missing, run_end, run_pause, run_resume
from dashboard.views.area import RunArea
from dashboard.words import (
    clock_time,
    duration,
    elapsed,
    number,
    percent,
    plural,
    short_time,
    utc_time,
)
from dashboard.words import to_float as value_of
from lagoon.config import DEFAULT_STALL_SECONDS
from lagoon.metrics import HELDOUT_SUCCESS, RESPONSE_TOKENS, TOKENS_PER_SECOND
from lagoon.stalls import idle_words
from lagoon.status import RunStatus
from lagoon.truth import CONDITION_WORDS


def title(area: RunArea, *, drawn: tuple[run_end.Phase, bool]) -> None:
    """Name, status, reason, and what the run is made of.

    The page is drawn anew when the run's phase, or whether it is to be paused, is not what it was
    drawn for: its buttons and its timers are others then.
    """
    detail = _refreshed(area)
    if (run_end.phase(detail), detail["is_paused"]) != drawn:
        st.rerun(scope="app")
    st.html(
        f'<h1 class="lg-title">{escape(detail["name"])} {markup.pill(detail["status"])}'
        f"{markup.condition(detail['condition'])}</h1>"
        f'<p class="lg-reason">{escape(reason(detail))}</p>{_condition(area)}'
        + run_pause.notice(detail)
        + run_end.stop_steps(area)
        + run_end.remains(detail)
        + _facts(area)
    )


def _refreshed(area: RunArea) -> records.RunDetail:
    """The run's detail now; while the API is away, a sentence and what was last known."""
    try:
        return area.watch.refresh(area.site.api)
    except (ApiUnreachable, Unavailable) as error:
        if area.watch.detail is None:
            raise
        words, body = trouble.explanation(error, area.site.api)
        st.html(markup.notice(words, f"This is what was last known. {body}", "bad"))
        return area.watch.detail


def alarms(detail: records.RunDetail) -> None:
    """What was dropped; the first NaN and the first weights that did not arrive, named; the
    traceback of a failure, folded."""
    if lost := missing.dropped(detail):
        st.html(lost)
    if detail["first_nan"]:
        nan = detail["first_nan"]
        st.html(
            markup.notice(
                f"First NaN: {nan['name']} at step {nan['step']}.",
                "Lines break there, at a cross. Weights saved before that step are not affected; "
                "later ones may be damaged.",
                "bad",
            )
        )
    if detail["first_mismatch"]:
        mismatch = detail["first_mismatch"]
        st.html(
            markup.notice(
                f"Weights did not arrive: version {mismatch['step']}, attempt "
                f"{mismatch['attempt']}.",
                "A generator did not hold what was published. It was given no episodes: either "
                "it proved the weights when they were published once more, or the run failed. The "
                "log says which, and why.",
                "bad",
            )
        )
    if detail["traceback"]:
        with st.expander("Traceback", icon=":material/bug_report:"):
            st.code(detail["traceback"], language="python", wrap_lines=True)


def reason(detail: records.RunDetail) -> str:
    """The status in a sentence."""
    status = RunStatus(detail["status"])
    if detail["reason"]:
        return detail["reason"]
    waiting = detail["waiting_for"]
    if status is RunStatus.QUEUED and waiting:
        return f"Waiting for {waiting['name']} ({waiting['run_id']}) to end."
    return {
        RunStatus.QUEUED: "Waiting for the machine.",
        RunStatus.STARTING: "Starting its generators.",
        RunStatus.RUNNING: "Training.",
        RunStatus.STOPPING: "Asked to stop; it saves its weights first.",
        RunStatus.FINISHED: "Reached the end of its budget.",
        RunStatus.STOPPED: "Stopped before the end of its budget.",
        RunStatus.FAILED: "Failed.",
    }[status]


def _condition(area: RunArea) -> str:
    """What is wrong with an active run, in words, and since when."""
    detail = area.detail
    words = CONDITION_WORDS.get(detail["condition"])  # type: ignore[call-overload]  # any text
    if not words or not detail["condition_since"]:
        return ""
    since = clock_time(detail["condition_since"], area.site.zone)
    if detail["condition"] == "stalled":
        return _stalled(detail, since)
    return markup.notice(f"Since {since}: {words}", "This is not a failure.", "warn")


def _stalled(detail: records.RunDetail, since: str) -> str:
    attempt = detail["attempts"][-1]
    activity, idle_seconds = attempt["activity"], attempt["idle_seconds"]
    if activity is None or idle_seconds is None:
        return ""
    limit = detail["config"]["budget"].get("stall_seconds", DEFAULT_STALL_SECONDS)
    return markup.notice(
        f"Since {since}: {idle_words(activity, idle_seconds)}",
        f"This is not a failure yet; after {duration(limit)} without progress the run is ended.",
        "warn",
    )


def figures(area: RunArea) -> None:
    """Progress and the four figures that matter."""
    detail = area.detail
    active = RunStatus(detail["status"]).is_active
    alarms(detail)
    area.curves([HELDOUT_SUCCESS, TOKENS_PER_SECOND, RESPONSE_TOKENS])
    st.html(markup.progress(detail["step"], detail["max_steps"], is_active=active))
    st.html(
        markup.cards(
            (
                markup.card("Step", f"{number(detail['step'])} / {number(detail['max_steps'])}",
                            _share_done(detail)),
                markup.card("Held-out success", percent(detail["last_heldout_success"]),
                            _gain(area), "Greedy success on the fixed held-out tasks"),
                markup.card("Reward", number(detail["last_reward"]), "last step, mean"),
                _speed(area),
                markup.card("Time", elapsed(detail["started_at"], detail["ended_at"],
                                            area.site.now()), _ended(area)),
            )
        )
    )  # fmt: skip


def actions(site: Site, detail: records.RunDetail) -> None:
    """Clone and stop, outside every timer."""
    with st.container(key="actions", horizontal=True, horizontal_alignment="right"):
        if st.button("Clone", icon=":material/content_copy:", help="Start from this configuration"):
            site.open("launch", clone=detail["id"])
        run_resume.actions(site, detail)
        run_pause.actions(site, detail)
        status = RunStatus(detail["status"])
        if not status.is_terminal and st.button(
            "Stop", icon=":material/stop_circle:", disabled=status is RunStatus.STOPPING
        ):
            _confirm_stop(site, detail)


@st.dialog("Stop this run?")
def _confirm_stop(site: Site, detail: records.RunDetail) -> None:
    st.html(
        f"<p><b>{escape(detail['name'])}</b> (<code>{escape(detail['id'])}</code>) "
        f"{_what_a_stop_does(detail)}</p>"
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep running"):
            st.rerun()
        if st.button(f"Stop {detail['name']}", type="primary", key="confirm_stop"):
            with trouble.reported(site.api):
                site.api.stop_run(detail["id"])
                st.rerun()


def _what_a_stop_does(detail: records.RunDetail) -> str:
    """What becomes of the run when it is stopped in its status, after its name."""
    stays = "what it has saved and reported stays, and it can be resumed."
    if detail["status"] == RunStatus.QUEUED and len(detail["attempts"]) > 1:
        return f"waits for its next attempt. It leaves the queue; {stays}"
    if detail["status"] == RunStatus.STARTING and len(detail["attempts"]) > 1:
        return f"is starting its next attempt. That ends without weights of its own; {stays}"
    if detail["status"] == RunStatus.QUEUED:
        return "has not started. It leaves the queue; there is nothing to save."
    if detail["status"] == RunStatus.STARTING:
        return "is starting and has trained nothing yet. It ends without weights to save."
    return (
        f"has done {detail['step']} of {plural(detail['max_steps'], 'step')}. It saves its "
        "weights, then ends. What it has reported stays, and it can be resumed."
    )


def way_back(site: Site, detail: records.RunDetail) -> None:
    """A link to the run's experiment, by its title."""
    key = detail["experiment_id"]
    try:
        experiment = remembered(f"experiment {key}", lambda: site.api.experiment(key))
    except ApiError:
        return  # The run can be read without it.
    with st.container(key="crumb"):
        site.link("experiment", experiment["title"], icon=":material/arrow_back:", experiment=key)


def _facts(area: RunArea) -> str:
    detail, site = area.detail, area.site
    created = detail["created_at"]
    pairs = [
        ("method", escape(detail["method"])),
        ("environment", escape(detail["environment"])),
        ("model", escape(detail["model"])),
        ("by", escape(detail["owner"])),
        ("created", f'<span title="{utc_time(created)}">{short_time(created, site.zone)}</span>'),
        ("id", f"<code>{escape(detail['id'])}</code>"),
    ]
    if len(detail["attempts"]) > 1:
        pairs.append(("attempts", str(len(detail["attempts"]))))
    if lineage := run_resume.lineage(detail):
        pairs.append(("lineage", escape(lineage)))
    if detail["control"] != "none":
        pairs.append(("control", markup.chip(detail["control"].replace("_", " "), "warn")))
    return markup.facts(pairs)


def _share_done(detail: records.RunDetail) -> str:
    return f"{100 * detail['step'] / max(1, detail['max_steps']):.0f} % of the budget"


def _gain(area: RunArea) -> str:
    detail, success = area.detail, area.curve(HELDOUT_SUCCESS)
    if success and len(success.values) == 1:
        return _first_evaluation(detail, success.steps[0])
    first, last = (
        value_of(detail["first_heldout_success"]),
        value_of(detail["last_heldout_success"]),
    )
    if not (math.isfinite(first) and math.isfinite(last)):
        return "not evaluated yet"
    points = 100 * (last - first)
    kind = "good" if points > 0 else ("bad" if points < 0 else "")
    return markup.chip(f"{points:+.1f} points", kind) + f" from {percent(first)}"


def _first_evaluation(detail: records.RunDetail, step: int) -> str:
    """There is nothing to compare yet: when there will be."""
    if RunStatus(detail["status"]).is_terminal:
        return "the only evaluation"
    every, last = detail["config"]["evaluation"]["every_steps"], detail["max_steps"]
    following = min((step // every + 1) * every, last)
    note = f"; the next at step {number(following)}" if following > step else ""
    return f"first evaluation{note}"


def _speed(area: RunArea) -> str:
    speed = area.curve(TOKENS_PER_SECOND)
    if not speed or not speed.values:
        return markup.card("Tokens / s", "–", "nothing sampled yet")
    last = speed.last()
    length = area.curve(RESPONSE_TOKENS)
    note = ""
    if length and length.values:
        note = f"{number(length.last())} tokens a trajectory"
    return markup.card("Tokens / s", number(round(last)) if math.isfinite(last) else "–", note)


def _ended(area: RunArea) -> str:
    detail = area.detail
    if detail["ended_at"]:
        return f"ended {escape(clock_time(detail['ended_at'], area.site.zone))}"
    return "since it started" if detail["started_at"] else "not started yet"
