"""What is true of a run: one decision from its driver, from Ray, and from what was asked for.

::

    heartbeat ┐
    Ray       ├─▶ judge ─▶ still alive, and how it is    (unresponsive, lost, unknown to Ray)
    marker    │        └─▶ over: finished, stopped or failed, with the reason
    desired   │
    gone      │        (none of its processes is left: ``lagoon.stopping.is_gone``)
    earlier   │        (processes of attempts before it are left)
    stalled   ┘        (heard, and no progress for long: ``lagoon.stalls``)

No source is trusted alone. The end marker is the driver's own last word and outranks everything. A
driver that is heard is alive, whatever Ray says of its job. Ray's word that a job is over counts
once the driver is silent. Ray being unreachable says nothing. Silence alone is a condition, never a
failure: a machine that sleeps, or a network that is cut, looks the same from here. A run that was
asked to stop is stopped once its processes are gone, those of earlier attempts included, and not
before; one that ends by itself has ended with its driver's last word.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from lagoon.status import OVER_FOR_RAY, EndMarker, RayStatus, RunStatus

Heartbeat = Literal["never", "fresh", "stale", "lost"]
"""How long the driver has been silent; ``never`` when nothing was heard of it yet."""
Desired = Literal["run", "stop"]
"""What people want of the run."""
Condition = Literal["", "unresponsive", "lost", "unknown_to_ray", "stalled"]
"""How an active run is, beside its status. None of them is a failure."""

STALE_AFTER_SECONDS = 30.0
"""Six heartbeats missed in a row."""
LOST_AFTER_SECONDS = 300.0
OBSERVATION_SECONDS = 60.0
"""What was seen of Ray longer ago says nothing any more."""

HEARTBEATS: tuple[Heartbeat, ...] = get_args(Heartbeat)

_ENDED_WITHOUT_MARKER = {
    "succeeded": "Its Ray job ended without an end marker.",
    "failed": "Its Ray job failed before the driver could say why.",
    "missing": "Ray no longer knows its job, and its driver is silent.",
}
_GONE = "Its processes are gone; the driver left no end marker."
CONDITION_WORDS: dict[Condition, str] = {
    "unresponsive": "Its driver is silent; Ray has not said that it ended.",
    "lost": "Its driver has been silent for minutes. It may still run where nobody can see it: "
    "stop it to be sure, or wait.",
    "unknown_to_ray": "Ray says that its job is over, but its driver was heard a moment ago.",
    "stalled": "It is alive, but no trajectory has finished and no step was done for a while.",
}
"""What a condition means, for people."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an active run has become."""

    outcome: RunStatus | None
    """The terminal status it has reached, or None while it is alive as far as anyone can tell."""
    condition: Condition
    """How it is while it is alive; empty when all is well, or when it is over."""
    reason: str
    """One sentence; empty when there is nothing to say."""


def heartbeat(silent_seconds: float | None) -> Heartbeat:
    """The class of a silence of ``silent_seconds``; None when nothing was heard at all."""
    if silent_seconds is None:
        return "never"
    if silent_seconds < STALE_AFTER_SECONDS:
        return "fresh"
    return "stale" if silent_seconds < LOST_AFTER_SECONDS else "lost"


def judge(
    heard: Heartbeat,
    ray: RayStatus,
    marker: EndMarker | None,
    desired: Desired,
    *,
    gone: bool = False,
    earlier_left: bool = False,
    stalled: bool = False,
) -> Verdict:
    """What an active attempt's sources say together. Total: every combination has an answer."""
    verdict = _of_what_is_known(heard, ray, marker, desired, gone)
    is_cleared = gone and not earlier_left
    if verdict.outcome is RunStatus.STOPPED and desired == "stop" and not is_cleared:
        return _alive("")  # as good as stopped, but for its processes
    if verdict == _alive("") and heard == "fresh" and stalled:
        return _alive("stalled")
    return verdict


def _of_what_is_known(
    heard: Heartbeat, ray: RayStatus, marker: EndMarker | None, desired: Desired, gone: bool
) -> Verdict:
    if marker is not None:
        return _marked(marker, ray)
    if gone:
        return _over_for_ray(ray, desired)
    if ray in OVER_FOR_RAY:
        if heard == "fresh":
            return _alive("unknown_to_ray")
        return _over_for_ray(ray, desired)
    if heard in ("stale", "lost"):
        return _alive("unresponsive" if heard == "stale" else "lost")
    return _alive("")


def _marked(marker: EndMarker, ray: RayStatus) -> Verdict:
    disagrees = marker == "finished" and ray in ("failed", "stopped")
    note = f"The driver finished; Ray calls its job {ray}." if disagrees else ""
    return Verdict(RunStatus(marker), "", note)


def _over_for_ray(ray: RayStatus, desired: Desired) -> Verdict:
    if desired == "stop":
        words = "Stopped on request; the driver left no end marker."
        return Verdict(RunStatus.STOPPED, "", words)
    if ray == "stopped":
        return Verdict(RunStatus.STOPPED, "", "Its Ray job was stopped from outside Lagoon.")
    return Verdict(RunStatus.FAILED, "", _ENDED_WITHOUT_MARKER.get(ray, _GONE))


def _alive(condition: Condition) -> Verdict:
    return Verdict(None, condition, CONDITION_WORDS.get(condition, ""))
