"""Trajectories: the newest episodes as conversations."""

from html import escape

import streamlit as st

from dashboard import markup, records
from dashboard.views import missing
from dashboard.views.area import RunArea
from dashboard.views.url_choice import url_choice
from dashboard.words import duration, number, plural, to_float

SPLITS = {"all": "All", "train": "Training", "heldout": "Held-out"}
OUTCOMES = {"all": "Any outcome", "success": "Success", "failure": "Failure"}
MAX_READ = 60
MAX_SHOWN = 12


def controls() -> dict[str, str]:
    """The filters, drawn outside the timer."""
    with st.container(key="filters", horizontal=True):
        split = url_choice("split", SPLITS, "Split")
        outcome = url_choice("outcome", OUTCOMES, "Outcome")
    return {"split": split, "outcome": outcome}


def show(area: RunArea) -> None:
    """Cards, newest first."""
    if thinned := missing.notice(area.detail, "trajectories", "trajectory_texts"):
        st.html(thinned)
    split, outcome = area.controls.get("split", "all"), area.controls.get("outcome", "all")
    page = area.watch.kept(
        f"trajectories {split}",
        lambda: area.site.api.trajectories(
            area.watch.run_id, split=None if split == "all" else split, limit=MAX_READ
        ),
    )
    wanted = {"success": True, "failure": False}.get(outcome)
    chosen = [t for t in page["items"] if wanted is None or t["success"] is wanted]
    if not chosen:
        _nothing(bool(page["items"]))
        return
    st.caption(f"Newest first: {min(len(chosen), MAX_SHOWN)} of {len(page['items'])} read.")
    left, right = st.columns(2, gap="medium")
    for index, trajectory in enumerate(chosen[:MAX_SHOWN]):
        with left if index % 2 == 0 else right:
            st.html(card(trajectory))


def _nothing(has_others: bool) -> None:
    if has_others:
        st.html(markup.empty("None of these.", "No recent trajectory matches the filters."))
    else:
        st.html(markup.empty("No trajectories yet.", "They appear with the first rollouts."))


def card(trajectory: records.TrajectoryRecord) -> str:
    """One episode: its outcome, then its turns."""
    outcome = markup.chip("success", "good") if trajectory["success"] else markup.chip("failure")
    chips = [
        outcome,
        markup.chip(f"reward {number(trajectory['reward'])}"),
        markup.chip("held-out" if trajectory["split"] == "heldout" else "training"),
    ]
    if trajectory["truncated"]:
        chips.append(markup.chip("cut by a limit", "warn"))
    about = (
        f"step {trajectory['step']} · {plural(trajectory['num_tokens'], 'token')} · "
        f"{duration(to_float(trajectory['seconds']))} · {_versions(trajectory)}"
    )
    turns = "".join(_turn(turn) for turn in trajectory["turns"])
    return (
        f'<div class="lg-talk"><div class="lg-talk-head">{"".join(chips)}'
        f'<small title="{escape(trajectory["trajectory_id"])}">{escape(about)}</small></div>'
        f"{turns}</div>"
    )


def _versions(trajectory: records.TrajectoryRecord) -> str:
    first, last = trajectory["first_version"], trajectory["completed_version"]
    if first is None:
        return "policy version unknown"
    return f"policy {first}" if first == last else f"policy {first}–{last}"


def _turn(turn: records.TurnRecord) -> str:
    names = {"system": "instructions", "user": "task", "assistant": "policy", "tool": "tool"}
    notes = []
    seconds = to_float(turn["seconds"])
    if seconds >= 0.001:
        verb = "answered after" if turn["role"] == "tool" else "took"
        notes.append(f"{verb} {_wait(seconds)}")
    failed = f'<em class="bad">{escape(turn["error"])}</em>' if turn["error"] else ""
    role = turn["role"] if turn["role"] in names else "user"
    return (
        f'<div class="lg-turn {role}"><span>{names[role]}<i>{" ".join(notes)}</i></span>'
        f"<pre>{escape(turn['text']) or '<i>(empty)</i>'}</pre>{failed}</div>"
    )


def _wait(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds)
