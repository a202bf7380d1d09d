"""The driver's pulse: heartbeats that say how far the run is, and the end of one that stands still.

::

    every 5 s:  progress made? ─▶ the clock starts anew
                heartbeat(step, trajectories, activity, idle seconds) ─▶ sink
                idle past the limit ─▶ alarm: the loop fails with what it waits for, and saves
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable

from lagoon.events import HeartbeatLogged
from lagoon.proc import machine_id
from lagoon.stalls import Activity, idle_words, standstill
from workers.failures import RunFailed
from workers.loops.context import Progress
from workers.sink import Sink

HEARTBEAT_SECONDS = 5.0
ASK_SECONDS = 2.0
"""How long generators may take to say what their episodes wait for."""


class Idleness:
    """The time since a trajectory or a step was finished, or the loop began or was resumed."""

    def __init__(self, progress: Progress, stopwatch: Callable[[], float]) -> None:
        self._progress, self._stopwatch = progress, stopwatch
        self._seen, self._since = self._reached(), stopwatch()

    def seconds(self) -> float:
        """How long nothing has come forward, as far as was seen at the looks so far."""
        now, reached = self._stopwatch(), self._reached()
        if reached != self._seen:
            self._seen, self._since = reached, now
        return now - self._since

    def _reached(self) -> tuple[int, int, str]:
        progress, activity = self._progress, self._progress.activity
        apart = activity if activity in ("starting", "paused") else ""
        return progress.version, progress.trajectories, apart


async def pulse(
    sink: Sink,
    progress: Progress,
    *,
    limit_seconds: float,
    fencing_token: int | None = None,
    stopwatch: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Send heartbeats for ever; also while the loop saves after it has stood still for too long."""
    pid, host, machine = os.getpid(), socket.gethostname(), machine_id()
    idleness = Idleness(progress, stopwatch)
    while True:
        idle_seconds = idleness.seconds()
        is_long = standstill(idle_seconds, progress.activity, limit_seconds) != ""
        activity = await _why(progress) if is_long else progress.activity
        heartbeat = HeartbeatLogged(
            at=time.time(),
            step=progress.reported,
            pid=pid,
            host=host,
            boot_id=machine,
            fencing_token=fencing_token,
            trajectories=progress.trajectories,
            activity=activity,
            idle_seconds=idle_seconds,
        )
        sink.log(heartbeat)
        if standstill(idle_seconds, activity, limit_seconds) == "over":
            words = (
                f"{idle_words(activity, idle_seconds)} The run was ended for it "
                "(budget.stall_seconds); weights that were saved before are safe."
            )
            progress.alarm.sound(RunFailed(words))
        await sleep(HEARTBEAT_SECONDS)


async def _why(progress: Progress) -> Activity:
    """What the loop waits for. One without trajectories may have generators that do not sample, or
    tools that do not answer: they know which, if they answer."""
    if progress.activity not in ("starved", "evaluating") or progress.ask_tools is None:
        return progress.activity
    try:
        in_tools = await asyncio.wait_for(progress.ask_tools(), ASK_SECONDS)
    except (RunFailed, TimeoutError):  # a dead generator is told of by whoever plays on it
        return progress.activity
    return "tool" if in_tools else progress.activity
