"""Policy-gradient training: generation and updates around a pool of finished groups.

::

             ┌────────────── admission ◀─────────────── published version ◀──────────────┐
             ▼                                                                           │
    prompt ─▶ generators ─▶ trajectories ─▶ group ─▶ pool ─▶ batch ─▶ trainer ─▶ publish ┘
             (issue)                        (complete) (ready) (reserve)  (train)
                ▲                                       └─▶ dropped        │
                └── held-out tasks, beside training or before it ◀─────────┘ at chosen versions

admission   consumes the run's prompt order; produces episodes for the generators; waits for room
            under the staleness bound; unblocked by a publish (``admission.py``).
group       consumes a prompt's trajectories; produces a ready group; waits for its slowest one.
training    consumes ready groups; produces policy versions; waits for a full batch, which the
            method selects from the pool (``pool.py``); unblocked by a group.
evaluation  consumes a published version; produces its success; the next publish waits for it
            (``beside.py``).
newcomers   take the place of generators that have died; wait for the weights that the others
            hold; are given episodes when they have proved them.

This is the asynchronous loop. With a staleness bound of 0 admission opens only when the update
before has been published, so generation and training take turns and nothing trained on is stale:
synchronous training is that setting, not another loop. With a larger bound, or none, a publish
falls into episodes in flight: they keep going, are waited for, or are cut (``weight_update_mode``).
Versions count optimizer steps. A publish is over when the generators have proved what they hold
(``proving.py``); what they played before and could not prove is played again.

An attempt begins with the state that its checkpoint holds: groups that were ready are in the pool,
and prompts that were in flight are issued again, before any new one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from lagoon import metrics as m
from lagoon.advantages import has_signal
from lagoon.books import token_points
from lagoon.drift import drift, drift_points
from lagoon.ledger import Ledger
from lagoon.methods import PolicyGradient
from lagoon.metrics import CATALOGUE
from lagoon.points import Point, point
from lagoon.schedules import learning_rate_at
from lagoon.staleness import staleness_account
from lagoon.trajectory import TrainingSample, Trajectory, TrajectoryGroup
from workers.loops.admission import Admission
from workers.loops.beside import Evaluations
from workers.loops.context import LoopContext, Outcome, supervised, unless_stopped
from workers.loops.heeding import heed
from workers.loops.pool import Pool
from workers.loops.proving import Predictor, Prover
from workers.loops.state import LoopState
from workers.reporting import (
    ledger_points,
    rollout_points,
    sampling_points,
    sync_points,
    waiting_points,
)
from workers.step_report import StepReport


class TrainerHandle(Predictor, Protocol):
    """The trainer, wherever it runs."""

    async def ready(self) -> None:
        """Wait until the model is loaded; raises ``RunFailed`` when it cannot be."""
        ...

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        """One optimizer step."""
        ...

    async def save(self, folder: str) -> None:
        """Write the weights as a model folder."""
        ...


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What a step is measured from."""

    at: float
    num_tokens: int
    """Sampled until then."""
    score_seconds: float
    """Spent on scores until then."""


class PolicyGradientLoop:
    """One run of a policy-gradient method, from its first prompt to its last update."""

    def __init__(self, context: LoopContext, trainer: TrainerHandle) -> None:
        self.context, self.trainer = context, trainer
        self.prover = Prover(context)
        begins = context.begins
        self._changed = asyncio.Event()
        self.pool = Pool(begins)
        self.admission = Admission(context, self.pool, self._changed)
        self._overlaps = self.method.staleness_bound != 0
        """Generation, training and evaluation go on at the same time; else they take turns."""
        self._evaluations = Evaluations(context, beside=self._overlaps)
        self._is_stepping = False
        """The trainer's weights are on their way to a version that is not reported yet: from its
        checkpoint the run would go on past a step that nobody was told of."""
        self._tokens_before = _tokens_before_the_books(begins)
        self._num_samples = begins.num_samples
        self._score_seconds = 0.0
        """How long the trainer has scored finished groups."""
        self._started: float | None = None

    @property
    def method(self) -> PolicyGradient:
        """As it is now: some of its fields may change between two updates."""
        return cast(PolicyGradient, self.context.controls.config.method)

    @property
    def version(self) -> int:
        """Optimizer steps done."""
        return self.context.progress.version

    @property
    def ledger(self) -> Ledger:
        """Where all prompts are."""
        return self.pool.ledger

    @property
    def num_tokens(self) -> int:
        """Tokens sampled for training, as far as their episodes have come back."""
        return self._tokens_before + self.pool.books.tokens.issued

    async def run(self) -> Outcome:
        """Train until the budget is spent or a stop is asked for.

        Raises ``RunFailed`` when an environment fails, or a generator that is not replaced, or the
        run stands still.
        """
        generators = self.context.generators
        background = [
            *(generators.pump(index) for index in range(len(generators.handles))),
            self.admission.run(),
            self._welcome(),
            self.context.wake(self._changed),
            self.context.progress.alarm.watch(),
        ]
        try:
            return await supervised(self._train(), background)
        except Exception:  # whatever it is: what was learned is kept, and it is raised on
            await self._evaluations.cancel()
            if not self._is_stepping:
                await self.context.save_after_failure(self.state, self._save)
            raise
        finally:
            await self._evaluations.cancel()
            await self.admission.give_up()

    def state(self) -> LoopState:
        """What is needed to go on from here. A batch drawn but not trained on goes back."""
        context = self.context
        books = self.pool.books_between_updates(self.admission.unfinished)
        return LoopState(
            version=self.version,
            evaluated=context.progress.evaluated,
            seconds=context.trained_seconds(self._started, context.begins.seconds),
            num_tokens=self.num_tokens,
            num_samples=self._num_samples,
            ledger=books.prompts,
            tokens=books.tokens,
            trained=books.trained,
            lost=books.dropped,
            in_flight=self.admission.in_flight,
            pool=self.pool.groups,
            memory=dict(self.pool.memory),
        )

    # -- training --------------------------------------------------------------------------------

    async def _train(self) -> Outcome:
        """Consumes batches; produces versions; waits for a full batch; unblocked by a group."""
        context, max_steps = self.context, self.context.config.budget.max_steps
        await self.prover.open()
        context.generators.may_replace = True
        which = "the untrained policy" if self.version == 0 else f"version {self.version}"
        context.reporter.status("running", f"Evaluating {which}.")
        await context.evaluate_at_start()
        context.reporter.status("running", "Training.")
        self._started = context.started(context.begins.seconds)
        while self.version < max_steps and not context.out_of_time(self._started):
            self._admit(True)
            self.admission.backpressure_seconds()  # what lies between two steps is of neither
            begin = _Beginning(context.stopwatch(), self.num_tokens, self._score_seconds)
            groups = await self._draw()
            context.progress.activity = "training"
            # Only now: the first rollouts need no trainer, which loads its model meanwhile.
            await unless_stopped(context.stop, self.trainer.ready())
            if groups is None or context.stop.is_set():
                break
            await self._update(groups, begin)
            if self._overlaps:
                self._admit(True)
            elif context.is_evaluated(self.version):
                self.admission.version = None
            await self._evaluations.after_update(self.state, self._save)
        await self._give_up()
        await self._evaluations.over()
        if self.version == context.begins.version and context.stop.is_set():
            return "stopped"  # nothing was trained: there is nothing to save
        return await context.conclude(self.state, self._save)

    async def _give_up(self) -> None:
        """End what is in flight: nobody waits for it, and the last evaluation would behind it."""
        await self.admission.give_up()
        if num_lost := self.context.generators.num_lost["given_up"]:
            lost = point(m.LOST_EPISODES, num_lost, reason="given_up")
            self.context.reporter.step(self.version, [lost])

    def _admit(self, is_open: bool) -> None:
        """Open admission at the version that the generators hold, or close it."""
        self.admission.version = self.version if is_open else None
        self._changed.set()

    async def _draw(self) -> list[TrajectoryGroup] | None:
        """The method's batch; None when the run should stop instead."""
        self.context.progress.activity = "starved"
        if self.method.needs_scores:
            await unless_stopped(self.context.stop, self.trainer.ready())
        while not self.context.stop.is_set():
            self._changed.clear()
            await heed(self.context, self._changed, self._admit)
            if self.context.stop.is_set():  # it came during a pause
                break
            dropped = self.ledger.num_dropped
            groups = await self.pool.draw(self.method, self.version, self._score)
            if self.ledger.num_dropped > dropped:
                self._changed.set()  # there is room for others
            if groups:
                return groups
            await self._changed.wait()
        return None

    async def _score(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """What the trainer's present policy makes of the tokens of trajectories."""
        progress, began = self.context.progress, self.context.stopwatch()
        progress.activity = "scoring"
        try:
            samples = [TrainingSample(each, 0, 0) for each in trajectories]
            return await self.trainer.logprobs(samples)
        finally:
            progress.activity = "starved"
            self._score_seconds += self.context.stopwatch() - began

    async def _welcome(self) -> None:
        """Consumes generators that have taken the place of others; produces trusted ones."""
        generators = self.context.generators
        while True:
            await generators.arrived.wait()
            generators.arrived.clear()
            if self.context.stop.is_set():  # nobody plays any more, and no weights are published
                continue
            (await self.prover.welcome()).refuse()

    async def _update(self, groups: Sequence[TrajectoryGroup], begin: _Beginning) -> None:
        """Train on a batch, publish the new version, and report the step."""
        context = self.context
        drawn_at = context.stopwatch()
        learning_rate = self._learning_rate()
        samples = self._samples(groups)
        trajectories = [sample.trajectory for sample in samples]
        await self.prover.confirm(self.trainer)
        self._is_stepping = True
        report = await self.trainer.step(samples, learning_rate)
        masked = [scores.masked for scores in report.scores]
        account = staleness_account(trajectories, self.version, masked)
        drifted = drift(trajectories, report.scores, self.version)
        trained_at = context.stopwatch()
        occupancy = [
            *ledger_points(self.ledger, self.method.pool_target, self.admission.limit),
            *token_points(self.pool.books),
            *self.pool.points,
        ]
        self.pool.train(self.method, drifted)
        self._num_samples += len(trajectories)
        context.progress.version += 1
        context.progress.activity = "evaluating"
        await self._evaluations.evaluated()
        context.progress.activity = "updating"
        evaluated_at = context.stopwatch()
        proof = await self.prover.publish(self.version, self.trainer)
        held_back, now = self.admission.backpressure_seconds(), context.stopwatch()
        seconds, num_tokens = now - begin.at, self.num_tokens
        scored = self._score_seconds - begin.score_seconds
        context.reporter.step(
            self.version,
            [
                *_reward_points(groups),
                *context.reporter.staleness(self.version, account),
                *occupancy,
                *waiting_points(held_back, context.generators.num_lost),
                *rollout_points(trajectories),
                *sampling_points(num_tokens - begin.num_tokens, seconds, num_tokens),
                *_trainer_points(report),
                *drift_points(drifted),
                *(sync_points(proof) if proof else ()),
                point(m.STEP_SECONDS, seconds),
                point(m.GENERATE_SECONDS, drawn_at - begin.at - scored),
                *([point(m.SCORE_SECONDS, scored)] if self.method.needs_scores else ()),
                point(m.TRAIN_SECONDS, trained_at - drawn_at),
                point(m.EVALUATION_WAIT_SECONDS, evaluated_at - trained_at),
                point(m.PUBLISH_SECONDS, now - evaluated_at),
                point(m.TOTAL_SAMPLES, self._num_samples),
            ],
        )
        context.progress.reported = self.version
        self._is_stepping = False
        context.reporter.trajectories(self.version, trajectories)
        if proof is not None:
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


def _tokens_before_the_books(begins: LoopState) -> int:
    """Tokens that are in no books of this run: those of the one that it goes on from with other
    prompts. Nothing was sampled that the books lack where a checkpoint counted less than they."""
    return max(0, begins.num_tokens - (begins.tokens.issued if begins.tokens else 0))


def shuffled(rewards: Sequence[Sequence[float]], key: tuple[int, int]) -> list[list[float]]:
    """The same rewards dealt out at random over all trajectories: the control that cannot learn."""
    flat = np.random.default_rng(key).permutation(np.concatenate([np.asarray(r) for r in rewards]))
    ends = np.cumsum([len(group) for group in rewards])
    return [[float(value) for value in part] for part in np.split(flat, ends[:-1])]


def _reward_points(groups: Sequence[TrajectoryGroup]) -> list[Point]:
    rewards = [reward for group in groups for reward in group.rewards]
    found = [
        point(m.REWARD_MEAN, float(np.mean(rewards))),
        point(m.REWARD_STD, float(np.std(rewards))),
    ]
    if len(rewards) > len(groups):  # else nothing is compared within them
        flat = sum(not has_signal(group.rewards) for group in groups)
        found.append(point(m.ZERO_VARIANCE_GROUPS, flat))
    return found


def _trainer_points(report: StepReport) -> list[Point]:
    return [
        point(CATALOGUE[name], total / count if count else math.nan)
        for name, (total, count) in report.sums.items()
    ]
