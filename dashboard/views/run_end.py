"""How far the end of a run is: the steps of a stop with their times, and what is left of it."""

from html import escape
from typing import Literal

from dashboard import markup, records
from dashboard.views.area import RunArea
from dashboard.words import day_time, utc_time
from lagoon.status import RunStatus

Phase = Literal["alive", "ending", "over"]


def phase(detail: records.RunDetail) -> Phase:
    """Whether anything will still happen to the run by itself.

    One that has ended is ``ending`` until its processes are known to be gone.
    """
    if not RunStatus(detail["status"]).is_terminal:
        return "alive"
    return "over" if all(attempt["gone_at"] for attempt in detail["attempts"]) else "ending"


def stop_steps(area: RunArea) -> str:
    """The steps of a stop that was asked for, with their times; nothing when none was."""
    detail = area.detail
    if detail["desired"] != "stop" or not detail["attempts"]:
        return ""
    is_over = RunStatus(detail["status"]).is_terminal
    steps = []
    for label, moment in _steps(detail):
        if moment:
            shown = day_time(moment, area.site.zone)
            steps.append((label, f'<span title="{utc_time(moment)}">{escape(shown)}</span>'))
        else:
            steps.append((label, "–" if is_over else markup.chip("waiting", "warn")))
    return markup.facts(steps)


def _steps(detail: records.RunDetail) -> list[tuple[str, str | None]]:
    attempt = detail["attempts"][-1]
    has_driver = not attempt["gone_at"] or attempt["submitted_at"] or attempt["started_at"]
    of_driver = [
        ("driver heard it", attempt["stop_heard_at"]),
        ("weights saved", attempt["stop_saved_at"]),
        ("driver ended", attempt["marker_at"]),
    ]
    return [
        (f"stop requested by {detail['stop_requested_by']}", detail["stop_requested_at"]),
        *(of_driver if has_driver else []),
        ("processes gone, resources free", _gone_at(detail)),
        (detail["status"] if detail["ended_at"] else "stopped", detail["ended_at"]),
    ]


def _gone_at(detail: records.RunDetail) -> str | None:
    """When nothing was left of any attempt: one before the newest may be the last to go."""
    moments = [attempt["gone_at"] for attempt in detail["attempts"]]
    known = [moment for moment in moments if moment]
    return max(known) if len(known) == len(moments) else None


def remains(detail: records.RunDetail) -> str:
    """A notice while processes of a run that is over are still seen."""
    if not RunStatus(detail["status"]).is_terminal:
        return ""
    left = sum(a["num_processes"] or 0 for a in detail["attempts"] if not a["gone_at"])
    if not left:
        return ""
    return markup.notice(
        f"{left} of its processes {'is' if left == 1 else 'are'} left.",
        "What does not end by itself within seconds is killed; until then it holds its memory.",
        "warn",
    )
