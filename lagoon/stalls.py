"""When a run has come to a standstill, and what it waits for then.

Progress is a finished trajectory or a finished step, nothing else: a loop that turns without either
makes none. The driver measures the time since, says it with every heartbeat together with what its
loop waits for, and ends the run itself when the limit is passed.
"""

from typing import Literal, get_args

Activity = Literal[
    "starting",
    "starved",
    "scoring",
    "tool",
    "training",
    "updating",
    "evaluating",
    "saving",
    "ending",
    "paused",
]
"""What a run's loop is at, or waits for."""
ACTIVITIES: tuple[Activity, ...] = get_args(Activity)

Standstill = Literal["", "stalled", "over"]
"""How bad it is: nothing to say, worth a word on the page, or past the limit."""

SAID_AFTER_SECONDS = 120.0
"""A standstill that lasts this long is said on the page; earlier where the limit is short."""

_WORDS: dict[Activity, str] = {
    "starting": "its model and its actors are still being started",
    "starved": "the loop is starved: it waits for trajectories that the generators do not finish",
    "scoring": "the trainer scores the finished groups that the next batch is chosen from",
    "tool": "all episodes in flight wait for a tool to answer",
    "training": "the trainer is busy with one step",
    "updating": "a weight update is in progress and some generator has not taken it",
    "evaluating": "the held-out tasks are being played",
    "saving": "a checkpoint is being written",
    "ending": "the run is ending",
    "paused": "somebody has paused it",
}


def said_after(limit_seconds: float) -> float:
    """How long a standstill lasts before the page says so."""
    return min(SAID_AFTER_SECONDS, limit_seconds / 2)


def standstill(idle_seconds: float, activity: Activity, limit_seconds: float) -> Standstill:
    """What a time without progress amounts to.

    A start has limits of its own (``workers.cluster.START_SECONDS``), and may fetch a model for
    longer than any step takes: it is said, and never ended for it. A pause is no standstill.
    """
    if activity == "paused":
        return ""
    if idle_seconds >= limit_seconds and activity not in ("starting", "ending"):
        return "over"
    return "stalled" if idle_seconds >= said_after(limit_seconds) else ""


def idle_words(activity: Activity, idle_seconds: float) -> str:
    """One sentence: since when nothing has come forward, and what is waited for."""
    return (
        f"No trajectory has finished and no step was done for {_duration(idle_seconds)}: "
        f"{_WORDS[activity]}."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
