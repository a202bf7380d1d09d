"""Changes of settings take effect: where a loop waits for its next batch, at the version it holds.

::

    loop waits for a batch ─▶ news? ─▶ settings are others, generators are told, the API is told
            ▲                             │ paused
            │                             ▼
            └── resumed, or stopped ◀── held: no rollout starts, no token is sampled, no step is
                                        taken, no time is counted; what is in flight is kept

An update that is being made is finished first, so that each change has one version: that of the
next batch. A pause is lifted by the change that lifts it, and by a stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from workers.loops.context import LoopContext


async def heed(context: LoopContext, changed: asyncio.Event, admit: Callable[[bool], None]) -> bool:
    """Have what people asked for take effect; wait while the run is paused. Whether anything was.

    ``changed`` wakes the loop, and is set by news (``LoopContext.wake``); ``admit`` is told whether
    rollouts may start.
    """
    controls = context.controls
    if not controls.has_news:
        return False
    await _take(context, admit)
    if controls.is_paused:
        await _held(context, changed, admit)
    changed.set()  # there may be room for others
    return True


async def brief(context: LoopContext, generators: Iterable[int]) -> None:
    """Tell generators at which pace all are to play, and once more if that is changed meanwhile:
    those that take the place of others begin as the run did."""
    generators, told = list(generators), None
    while generators and told != context.controls.in_force:
        told = places, is_paused = context.controls.in_force
        await _tell(context, generators, places, is_paused=is_paused)


async def _tell(
    context: LoopContext, generators: Iterable[int], places: int, *, is_paused: bool
) -> None:
    await context.generators.of_living(
        lambda handle: handle.steer(places, is_paused=is_paused), generators
    )


async def _take(context: LoopContext, admit: Callable[[bool], None]) -> None:
    controls = context.controls
    numbers, refused = controls.take()
    if controls.is_paused:
        admit(False)  # before the generators are told, which takes a while
    if controls.wanted != controls.in_force:
        controls.in_force = controls.wanted
        await brief(context, context.generators.living)
    if numbers or refused:
        context.reporter.controls(context.progress.version, numbers, refused)


async def _held(
    context: LoopContext, changed: asyncio.Event, admit: Callable[[bool], None]
) -> None:
    controls, progress, version = context.controls, context.progress, context.progress.version
    activity, progress.activity = progress.activity, "paused"
    controls.hold_time()
    words = f"Paused at version {version}: what is in flight is kept until it is resumed."
    context.reporter.status("running", words)
    while controls.is_paused and not context.stop.is_set():
        if not controls.has_news:
            changed.clear()
            await changed.wait()
        await _take(context, admit)
    controls.release_time()
    progress.activity = activity
    if not context.stop.is_set():
        context.reporter.status("running", f"Resumed at version {version}.")
        admit(True)
