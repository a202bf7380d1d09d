"""Policy-gradient training: generation and updates around a pool of finished groups.

::

             ┌────────────── admission ◀─────────────── published version ◀──────────────┐
             ▼                                                                           │
    prompt ─▶ generators ─▶ trajectories ─▶ group ─▶ pool ─▶ batch ─▶ trainer ─▶ publish ┘
             (issue)                        (complete) (ready) (reserve)  (train)

admission   consumes the run's prompt order; produces episodes for the generators; waits for room
            under the staleness bound; unblocked by a publish.
group       consumes a prompt's trajectories; produces a ready group; waits for its slowest one.
training    consumes ready groups; produces policy versions; waits for a full batch; unblocked by
            a group.

This is the asynchronous loop. With a staleness bound of 0 admission opens only when the update
before has been published, so generation and training take turns and nothing trained on is stale:
synchronous training is that setting, not another loop. Versions count optimizer steps. A publish is
over when the generators have proved what they hold (``proving.py``).

An attempt begins with the state that its checkpoint holds: groups that were ready are in the pool,
and prompts that were in flight are issued again, before any new one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from lagoon import metrics as m
from lagoon.advantages import has_signal
from lagoon.events import Point
from lagoon.methods import PolicyGradient
from lagoon.metrics import CATALOGUE
from lagoon.schedules import learning_rate_at
from lagoon.staleness import admissible, staleness_account
from lagoon.trajectory import TrainingSample, TrajectoryGroup
from workers.loops.context import LoopContext, Outcome, supervised, unless_stopped
from workers.loops.proving import Predictor, Prover
from workers.loops.state import LoopState
from workers.reporting import ledger_points, point, rollout_points, sync_points


class TrainerHandle(Predictor, Protocol):
    """The trainer, wherever it runs."""

    async def ready(self) -> None:
        """Wait until the model is loaded; raises ``RunFailed`` when it cannot be."""
        ...

    async def step(
        self, samples: Sequence[TrainingSample], learning_rate: float
    ) -> dict[str, tuple[float, float]]:
        """One optimizer step; returns (sum, count) by metric name."""
        ...

    async def save(self, folder: str) -> None:
        """Write the weights as a model folder."""
        ...


class PolicyGradientLoop:
    """One run of a policy-gradient method, from its first prompt to its last update."""

    def __init__(self, context: LoopContext, trainer: TrainerHandle) -> None:
        self.context, self.trainer = context, trainer
        self.prover = Prover(context)
        self.method = cast(PolicyGradient, context.config.method)
        self.admitting: int | None = None
        """Version at which new rollouts may start: what the generators hold, or None while no
        rollout may start (the policy is being evaluated, or the run ends)."""
        begins = context.begins
        self.ledger = begins.ledger
        self._pool = deque(begins.pool)
        self._drawn: list[TrajectoryGroup] = []
        """The groups of the update that is being made."""
        self._again = deque(begins.in_flight)
        """Positions that an earlier attempt had issued and this one has not yet."""
        self._changed = asyncio.Event()
        self._rollouts: dict[asyncio.Task[None], int] = {}
        """Rollouts in flight, with their prompts' positions."""
        self._failure: BaseException | None = None
        self._is_stepping = False
        """The trainer's weights are on their way to a version that is not reported yet: from its
        checkpoint the run would go on past a step that nobody was told of."""
        self._num_tokens, self._num_samples = begins.num_tokens, begins.num_samples
        self._started: float | None = None

    @property
    def version(self) -> int:
        """Optimizer steps done."""
        return self.context.progress.version

    async def run(self) -> Outcome:
        """Train until the budget is spent or a stop is asked for.

        Raises ``RunFailed`` when a generator or an environment fails, or the run stands still.
        """
        pumps = [
            self.context.generators.pump(i) for i in range(len(self.context.generators.handles))
        ]
        try:
            return await supervised(
                self._train(),
                [
                    *pumps,
                    self._admit(),
                    self.context.wake_on_stop(self._changed),
                    self.context.progress.alarm.watch(),
                ],
            )
        except Exception:  # whatever it is: what was learned is kept, and it is raised on
            if not self._is_stepping:
                await self.context.save_after_failure(self.state, self._save)
            raise
        finally:
            for task in self._rollouts:
                task.cancel()
            await asyncio.gather(*self._rollouts, return_exceptions=True)

    def state(self) -> LoopState:
        """What is needed to go on from here. A batch drawn but not trained on goes back."""
        context = self.context
        in_flight = (*self._rollouts.values(), *self._again)
        return LoopState(
            version=self.version,
            evaluated=context.progress.evaluated,
            seconds=context.trained_seconds(self._started, context.begins.seconds),
            num_tokens=self._num_tokens,
            num_samples=self._num_samples,
            ledger=self.ledger.put_back(len(self._drawn)),
            in_flight=tuple(sorted(in_flight)),
            pool=(*self._drawn, *self._pool),
        )

    # -- admission -------------------------------------------------------------------------------

    async def _admit(self) -> None:
        """Consumes prompts; produces rollouts; waits for room; unblocked by a publish."""
        while True:
            while (position := self._next_position()) is not None:
                task = asyncio.ensure_future(self._roll_out(position))
                self._rollouts[task] = position
                task.add_done_callback(self._note_end)
            self._changed.clear()
            await self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def _note_end(self, rollout: asyncio.Task[None]) -> None:
        """Forget an ended rollout; wake admission, which is supervised, when it failed.

        The prompt of one that failed stays in flight: it was neither trained on nor dropped.
        """
        if rollout.cancelled() or rollout.exception() is None:
            self._rollouts.pop(rollout, None)
            return
        self._failure = rollout.exception()
        self._changed.set()

    def _next_position(self) -> int | None:
        """The prompt to start now: one that was in flight before this attempt, or a new one."""
        in_flight = len(self._rollouts) * self.method.trajectories_per_prompt
        has_room = in_flight < self.context.config.rollout.max_concurrent
        if self.admitting is None or self.context.stop.is_set() or not has_room:
            return None
        if self._again:
            return self._again.popleft()
        started = self.ledger.issued - self.ledger.num_dropped
        room = admissible(
            self.admitting,
            started,
            max_staleness=self.method.staleness_bound,
            batch_size=self.method.prompts_per_step,
        )
        if room <= 0 or self.version >= self.context.config.budget.max_steps:
            return None
        self.ledger = self.ledger.issue()
        return self.ledger.issued - 1

    async def _roll_out(self, position: int) -> None:
        """Consumes a prompt; produces a ready group; waits for its slowest trajectory."""
        temperature = self.context.config.rollout.temperature
        assert temperature is not None  # resolved at validation
        requests = [
            self.context.training_request(position, str(member), temperature)
            for member in range(self.method.trajectories_per_prompt)
        ]
        played = await self.context.generators.play(requests)
        # All at once: a checkpoint has the prompt either in flight or in the pool.
        del self._rollouts[cast("asyncio.Task[None]", asyncio.current_task())]
        self._pool.append(TrajectoryGroup(requests[0].prompt_id, tuple(played)))
        self.ledger = self.ledger.complete()
        self._changed.set()

    # -- training --------------------------------------------------------------------------------

    async def _train(self) -> Outcome:
        """Consumes batches; produces versions; waits for a full batch; unblocked by a group."""
        context, max_steps = self.context, self.context.config.budget.max_steps
        await self.prover.open()
        which = "the untrained policy" if self.version == 0 else f"version {self.version}"
        context.reporter.status("running", f"Evaluating {which}.")
        await context.evaluate_at_start()
        context.reporter.status("running", "Training.")
        self._started = context.started(context.begins.seconds)
        while self.version < max_steps and not context.out_of_time(self._started):
            self._admit_at(self.version)
            step_started = context.stopwatch()
            groups = await self._draw()
            context.progress.activity = "training"
            # Only now: the first rollouts need no trainer, which loads its model meanwhile.
            await unless_stopped(context.stop, self.trainer.ready())
            if groups is None or context.stop.is_set():
                break
            await self._update(groups, step_started)
            if context.is_evaluated(self.version):
                self.admitting = None
            await context.after_update(self.state, self._save)
        self.admitting = None
        if self.version == context.begins.version and context.stop.is_set():
            return "stopped"  # nothing was trained: there is nothing to save
        return await context.conclude(self.state, self._save)

    def _admit_at(self, version: int) -> None:
        """Open admission at a version that the generators hold."""
        self.admitting = version
        self._changed.set()

    async def _draw(self) -> list[TrajectoryGroup] | None:
        """A batch of the oldest ready groups; None when the run should stop instead."""
        batch = self.method.prompts_per_step
        self.context.progress.activity = "starved"
        while len(self._pool) < batch:
            if self.context.stop.is_set():
                return None
            self._changed.clear()
            await self._changed.wait()
        if self.context.stop.is_set():
            return None
        self.ledger = self.ledger.reserve(batch)
        self._drawn = [self._pool.popleft() for _ in range(batch)]
        return self._drawn

    async def _update(self, groups: Sequence[TrajectoryGroup], step_started: float) -> None:
        """Train on a batch, publish the new version, and report the step."""
        context = self.context
        drawn_at = context.stopwatch()
        learning_rate = self._learning_rate()
        samples = self._samples(groups)
        trajectories = [sample.trajectory for sample in samples]
        account = staleness_account(trajectories, self.version)
        await self.prover.confirm(self.trainer)
        self._is_stepping = True
        sums = await self.trainer.step(samples, learning_rate)
        trained_at = context.stopwatch()
        occupancy = ledger_points(self.ledger, self.method.prompts_per_step)
        self.ledger = self.ledger.train(len(groups))
        self._drawn = []
        self._num_tokens += sum(t.num_actions for t in trajectories)
        self._num_samples += len(trajectories)
        context.progress.version += 1
        context.progress.activity = "updating"
        proof = await self.prover.publish(self.version, self.trainer)
        now = context.stopwatch()
        context.reporter.step(
            self.version,
            [
                *_reward_points(groups),
                *context.reporter.staleness(self.version, account),
                *occupancy,
                *rollout_points(trajectories, now - step_started),
                *_trainer_points(sums),
                *sync_points(proof),
                point(m.STEP_SECONDS, now - step_started),
                point(m.GENERATE_SECONDS, drawn_at - step_started),
                point(m.TRAIN_SECONDS, trained_at - drawn_at),
                point(m.PUBLISH_SECONDS, now - trained_at),
                point(m.TOTAL_TOKENS, self._num_tokens),
                point(m.TOTAL_SAMPLES, self._num_samples),
            ],
        )
        context.progress.reported = self.version
        self._is_stepping = False
        context.reporter.trajectories(self.version, trajectories)
        proof.refuse()

    def _learning_rate(self) -> float:
        trainer = self.context.config.trainer
        assert trainer is not None  # validation gives every policy-gradient run one
        return learning_rate_at(
            self.version,
            peak=trainer.learning_rate,
            shape=trainer.learning_rate_schedule,
            warmup_steps=trainer.warmup_steps,
            num_steps=self.context.config.budget.max_steps,
        )

    def _samples(self, groups: Sequence[TrajectoryGroup]) -> list[TrainingSample]:
        """Trajectories with their advantages and token weights."""
        rewards = [list(group.rewards) for group in groups]
        if self.context.config.control == "shuffled_rewards":
            rewards = shuffled(rewards, (self.context.config.seed, self.version))
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        advantages = [value for group in rewards for value in self.method.advantages(group)]
        weights = self.method.token_weights([t.num_actions for t in trajectories])
        return [
            TrainingSample(trajectory, advantage, weight)
            for trajectory, advantage, weight in zip(trajectories, advantages, weights, strict=True)
        ]

    async def _save(self, folder: Path) -> None:
        await self.trainer.save(str(folder))


def shuffled(rewards: Sequence[Sequence[float]], key: tuple[int, int]) -> list[list[float]]:
    """The same rewards dealt out at random over all trajectories: the control that cannot learn."""
    flat = np.random.default_rng(key).permutation(np.concatenate([np.asarray(r) for r in rewards]))
    ends = np.cumsum([len(group) for group in rewards])
    return [[float(value) for value in part] for part in np.split(flat, ends[:-1])]


def _reward_points(groups: Sequence[TrajectoryGroup]) -> list[Point]:
    rewards = [reward for group in groups for reward in group.rewards]
    return [
        point(m.REWARD_MEAN, float(np.mean(rewards))),
        point(m.REWARD_STD, float(np.std(rewards))),
        point(m.ZERO_VARIANCE_GROUPS, sum(not has_signal(group.rewards) for group in groups)),
    ]


def _trainer_points(sums: dict[str, tuple[float, float]]) -> list[Point]:
    return [
        point(CATALOGUE[name], total / count if count else math.nan)
        for name, (total, count) in sums.items()
    ]
