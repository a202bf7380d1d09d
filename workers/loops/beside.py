"""Evaluation of a version, before training goes on or beside it, and the checkpoint of the version.

::

    version published ─┬─▶ held-out tasks on the generators ─▶ success ─┐
                       └─▶ weights to the disk ─────────────────────────┴─▶ checkpoint is announced
                       └─▶ (beside:) rollouts and the next update go on; the next publish waits
                           for the evaluation, the next save for the announcement

A version is evaluated whole: generators take no new weights while they play its held-out tasks. The
checkpoint is announced with its success, which decides whether it is the best.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workers.checkpoints import SaveParts, Written
from workers.loops.context import LoopContext
from workers.loops.state import LoopState


class Evaluations:
    """What a run does with a version that it has published, besides training on from it."""

    def __init__(self, context: LoopContext, *, beside: bool) -> None:
        """``beside``: training goes on meanwhile; else all is done when ``after_update`` is."""
        self._context, self._beside = context, beside
        self._evaluation: asyncio.Future[float | None] | None = None
        """The last one that was begun beside training."""
        self._tasks: list[asyncio.Future[Any]] = []

    async def after_update(self, state: Callable[[], LoopState], save: SaveParts) -> None:
        """Evaluate the present version and save a checkpoint of it, each where it is due."""
        context = self._context
        if not self._beside:
            await context.after_update(state, save)
            return
        version, before = context.progress.version, context.progress.evaluated
        if context.is_checkpointed(version):
            context.progress.activity = "saving"
            await self.over()  # checkpoints are announced in their order
        evaluation = None
        if context.is_evaluated(version):
            evaluation = asyncio.ensure_future(context.evaluate(beside=True))
            self._evaluation = evaluation
            self._tasks.append(evaluation)
        if context.is_checkpointed(version):
            # The trainer's weights are of this version now; their success is known later.
            writing = context.checkpoints.write(replace(state(), evaluated=before), save)
            written = await context.saved_if_possible(version, writing)
            if written is not None:
                self._tasks.append(asyncio.ensure_future(self._announce(written, evaluation)))

    async def evaluated(self) -> None:
        """Wait until no version is being evaluated: its checkpoint may still be on its way. Raises
        what went wrong so far."""
        if self._evaluation is not None:
            await self._evaluation
        for task in self._tasks:
            if task.done():
                task.result()

    async def over(self) -> None:
        """Wait until all of it is done, announcements included. Raises what went wrong."""
        while self._tasks:
            await self._tasks[0]
            self._tasks.pop(0)

    async def cancel(self) -> None:
        """Give up what is not done: a checkpoint that was not announced is none."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _announce(
        self, written: Written, evaluation: asyncio.Future[float | None] | None
    ) -> None:
        success = None if evaluation is None else await evaluation
        if success is not None:  # or it was stopped, and is to be done by who goes on from here
            state = replace(written.state, evaluated=written.state.version)
            written = replace(written, state=state)
        announcing = self._context.checkpoints.announce(written, success, is_final=False)
        await self._context.saved_if_possible(written.state.version, announcing)
