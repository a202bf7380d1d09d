"""How a run is made to stop, step by step, and when its processes are gone.

::

    asked ──▶ the driver hears it with its next events, saves, writes its end marker
      ├─ 15 s ─▶ Ray is asked to end the job: a second request, at which a driver saves no more
      ├─ 23 s ─▶ what carries the attempt's mark is killed, and Ray is asked again
      ▼
    an attempt that is over, by whatever way: what is left of it 10 s later is killed too

The times leave the workers, who look every few seconds, enough of the 30 s in which every process
of a stopped run is to be gone. Nothing here acts: the API says which measure is due, the workers
take it.
"""

from typing import Literal, get_args

from lagoon.status import OVER_FOR_RAY, RayStatus
from lagoon.truth import Desired, Heartbeat

Measure = Literal["none", "ask", "ray_stop", "kill"]
"""What is due to end an attempt, mildest first."""
MEASURES: tuple[Measure, ...] = get_args(Measure)

RAY_STOP_AFTER_SECONDS = 15.0
"""A driver that was asked has this long to finish its step and save."""
KILL_AFTER_SECONDS = 23.0
"""Counted from the request, like the one before."""
LEFT_BEHIND_SECONDS = 10.0
"""How long processes of an attempt that is over may take to end by themselves."""


def measure(asked_seconds: float | None, over_seconds: float | None) -> Measure:
    """What is due for an attempt that is not gone yet.

    ``asked_seconds``: how long ago its stop was asked for; ``over_seconds``: how long ago it ended,
    by its end marker or by judgement. None: not so.
    """
    return max(_for_request(asked_seconds), _for_remains(over_seconds), key=MEASURES.index)


def _for_request(seconds: float | None) -> Measure:
    if seconds is None:
        return "none"
    if seconds < RAY_STOP_AFTER_SECONDS:
        return "ask"
    return "ray_stop" if seconds < KILL_AFTER_SECONDS else "kill"


def _for_remains(seconds: float | None) -> Measure:
    return "kill" if seconds is not None and seconds >= LEFT_BEHIND_SECONDS else "none"


def is_gone(
    ray: RayStatus,
    num_processes: int,
    heard: Heartbeat,
    *,
    same_machine: bool,
    desired: Desired,
    is_over: bool,
) -> bool:
    """True when no process of an attempt can be left, as far as anyone can see.

    Ray must say that the job does not run, and the workers must find no process with the attempt's
    mark. They see their own machine alone (``same_machine``: the driver was heard from it); of
    others Ray's word has to do, once the driver is silent or has ended. A driver that is still
    heard, and that nobody asked to stop, is never called gone: it would be called failed.
    """
    if ray not in OVER_FOR_RAY or num_processes > 0:
        return False
    return heard != "fresh" or is_over or (same_machine and desired == "stop")
