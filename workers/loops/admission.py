"""Admission: which prompts start, and when; what becomes of them.

::

    prompt order ─▶ room? ─▶ generators ─▶ trajectories ─▶ group ─▶ pool
          ▲           ▲           └─▶ lost with a generator ─▶ the prompt again, before any new one
          │           └─ places for episodes; the staleness bound; a publish opens it
          └─ first those that an earlier attempt had issued

A prompt whose episodes are lost is played again, and not dropped: who loses only what takes long
learns from what does not. What others of its group had finished is dropped from the books of
tokens. When the run ends, what is in flight is given up, and its prompts stay issued.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import cast

from lagoon.methods import PolicyGradient
from lagoon.staleness import admissible
from lagoon.trajectory import Trajectory, TrajectoryGroup
from workers.loops.context import LoopContext
from workers.loops.pool import Pool
from workers.seats import EpisodesLost, again

logger = logging.getLogger(__name__)


class Rollout:
    """A prompt in flight."""

    def __init__(self, position: int, num_trajectories: int) -> None:
        self.position = position
        """In the run's prompt order."""
        self.num_playing = num_trajectories
        """Trajectories that have not come back."""
        self.finished: list[Trajectory] = []
        """Those that have."""


class Admission:
    """Starts rollouts for as long as there is room, and puts the finished groups into the pool."""

    def __init__(self, context: LoopContext, pool: Pool, changed: asyncio.Event) -> None:
        """``changed`` is set when the pool has, and waited for here: whoever opens room sets it."""
        self._context, self._pool, self._changed = context, pool, changed
        self.version: int | None = None
        """Version at which new rollouts may start: what the generators hold, or None while no
        rollout may start."""
        self._again = deque(context.begins.in_flight)
        """Positions that were issued and are not in flight: they come before any new one."""
        self._tries: Counter[int] = Counter()
        """How often the episodes of a position were lost."""
        self._rollouts: dict[asyncio.Task[None], Rollout] = {}
        self._failure: BaseException | None = None
        self._blocked_since: float | None = None
        """When the bound began to hold back what there are places for."""
        self._blocked_seconds = 0.0

    @property
    def _method(self) -> PolicyGradient:
        """As it is now."""
        return cast(PolicyGradient, self._context.controls.config.method)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Positions that were issued and are neither in the pool nor dropped, in order."""
        return tuple(sorted((*(r.position for r in self._rollouts.values()), *self._again)))

    @property
    def unfinished(self) -> list[Trajectory]:
        """What has come back of the groups in flight."""
        return [each for rollout in self._rollouts.values() for each in rollout.finished]

    async def run(self) -> None:
        """Consumes prompts; produces ready groups; waits for room; unblocked by a publish, a
        finished trajectory or a drop. Raises what a rollout has failed with.
        """
        while True:
            while (position := self._next_position()) is not None:
                rollout = Rollout(position, self._method.trajectories_per_prompt)
                task = asyncio.ensure_future(self._roll_out(rollout))
                self._rollouts[task] = rollout
                task.add_done_callback(self._note_end)
            self._changed.clear()
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def backpressure_seconds(self) -> float:
        """How long the bound has held back what there are places for, since this was last asked."""
        self._note_blocked(is_blocked=self._blocked_since is not None)
        seconds, self._blocked_seconds = self._blocked_seconds, 0.0
        return seconds

    def _note_blocked(self, *, is_blocked: bool) -> None:
        now = self._context.stopwatch() if is_blocked or self._blocked_since is not None else None
        if self._blocked_since is not None and now is not None:
            self._blocked_seconds += now - self._blocked_since
        self._blocked_since = now if is_blocked else None

    async def give_up(self) -> None:
        """End all rollouts, and start no others. Their prompts stay in flight: they are played by
        whoever goes on from here."""
        self.version = None
        for task in self._rollouts:
            task.cancel()
        await asyncio.gather(*self._rollouts, return_exceptions=True)
        for task in list(self._rollouts):
            self._take_back(task)

    def _take_back(self, task: asyncio.Task[None]) -> None:
        """A rollout came to nothing: its prompt is to be played again, as a whole."""
        rollout = self._rollouts.pop(task)
        self._tries[rollout.position] += 1
        self._again.append(rollout.position)
        self._pool.lose(rollout.finished)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Wake ``run``, which is supervised, when a rollout has failed.

        Its prompt stays in flight: it was neither trained on nor dropped.
        """
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._changed.set()

    def _next_position(self) -> int | None:
        """The prompt to start now: one that was issued before, or a new one."""
        playing = sum(rollout.num_playing for rollout in self._rollouts.values())
        has_place = playing < self._context.controls.config.rollout.max_concurrent
        if self.version is None or self._context.stop.is_set() or not has_place:
            self._note_blocked(is_blocked=False)
            return None
        if self._again:
            return self._again.popleft()
        is_over = self._context.progress.version >= self._context.config.budget.max_steps
        ledger = self._pool.ledger
        room = self._room(self.version, ledger.issued - ledger.num_dropped)
        self._note_blocked(is_blocked=room <= 0 and not is_over)
        return self._pool.issue() if room > 0 and not is_over else None

    @property
    def limit(self) -> float:
        """Prompts that the bound lets be in flight, ready and drawn together; infinite without."""
        return self._room(self._context.progress.version, self._pool.ledger.trained)

    def _room(self, version: int, started: int) -> float:
        """New prompts that the bound lets start after ``started`` others, at ``version``."""
        bound = self._method.staleness_bound
        if bound is None:
            return inf
        return admissible(
            version,
            started,
            max_staleness=bound,
            batch_size=self._method.prompts_per_step,
        )

    async def _roll_out(self, rollout: Rollout) -> None:
        """Consumes a prompt; produces a ready group; waits for its slowest trajectory."""
        position = rollout.position
        temperature = self._context.config.rollout.temperature
        assert temperature is not None  # resolved at validation
        requests = [
            again(
                self._context.training_request(position, str(member), temperature),
                self._tries[position],
            )
            for member in range(self._method.trajectories_per_prompt)
        ]
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            played = await self._context.generators.play(requests, on_each=self._counting(rollout))
        except EpisodesLost as lost:
            logger.warning("prompt %d is played again: its episodes are lost (%s)", position, lost)
            self._take_back(task)
        else:
            # All at once: a checkpoint has the prompt either in flight or in the pool.
            del self._rollouts[task]
            group = TrajectoryGroup(requests[0].prompt_id, tuple(played))
            self._pool.complete(self._method, group)
        self._changed.set()

    def _counting(self, rollout: Rollout) -> Callable[[Trajectory | None], None]:
        def one_came_back(trajectory: Trajectory | None) -> None:
            rollout.num_playing -= 1
            if trajectory is not None:
                rollout.finished.append(trajectory)
                self._pool.came_back(trajectory)
            self._changed.set()

        return one_came_back
