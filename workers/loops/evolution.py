"""Evolution strategies: members evaluated by the generators, updates made of seeds and scalars.

::

             ┌─────────── admission ◀──────────── version ◀──────────────────────────────┐
             ▼                                                                           │
    seeds ─▶ generators ─▶ fitness ─▶ barrier ─▶ coefficients ─▶ update on every generator ┘
             (perturb, play the cases)  (N results)

member      consumes a seed; produces a fitness; waits for a free generator: each holds one
            perturbed policy at a time.
update      consumes the population's fitness; produces a policy version; waits for the last
            member (the barrier); unblocked by a fitness.

This is the asynchronous loop with a barrier: with a staleness bound of 0 the next members are
admitted only at the new version. The generators keep the fp32 master weights and apply the same
update from the same seeds; their checksums and their answers must agree after it (``proving.py``).
Versions count updates.

Every update goes to a log, from which it can be made again: an attempt begins with its checkpoint,
makes the logged updates after it, and goes on with a generation of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from lagoon import metrics as m
from lagoon.advantages import has_signal
from lagoon.checkpoints import UPDATES
from lagoon.evolution import member_seeds, non_finite, update_norm_law
from lagoon.ledger import Ledger
from lagoon.methods import Evolution
from lagoon.points import Point, point
from lagoon.staleness import admissible, staleness_account
from lagoon.trajectory import Trajectory
from workers.failures import RunFailed
from workers.handles import GeneratorHandle, UpdateReport
from workers.loops.context import LoopContext, Outcome, supervised
from workers.loops.heeding import heed
from workers.loops.proving import Prover
from workers.loops.state import LoopState
from workers.loops.updates import (
    Update,
    append_update,
    refuse_disagreement,
    refuse_other_weights,
)
from workers.reporting import (
    rollout_points,
    sampling_points,
    staleness_counts,
    staleness_points,
    sync_points,
)
from workers.rollout import EpisodeRequest

STALENESS_BOUND = 0
"""The barrier: every member of an update was perturbed at the version it updates."""


@dataclass(frozen=True, slots=True)
class Member:
    """An evaluated member of the population."""

    position: int
    """Place in its generation: the canonical order of the update's sum."""
    seed: int
    trajectories: tuple[Trajectory, ...]

    @property
    def fitness(self) -> float:
        """Mean reward over the cases."""
        return float(np.mean([trajectory.reward for trajectory in self.trajectories]))


class EvolutionLoop:
    """One run of an evolution strategy, from its first member to its last update."""

    def __init__(self, context: LoopContext, logged: Sequence[Update] = ()) -> None:
        """``logged``: updates that follow the state that the attempt begins with."""
        self.context = context
        self.prover = Prover(context)
        self.method = cast(Evolution, context.config.method)
        self._logged = list(logged)
        self.ledger = context.begins.ledger
        """Members, not prompts: the population is what evolution strategies train on."""
        self._finished: list[Member] = []
        self._open = False
        """False while the unperturbed policy is being evaluated or updated."""
        self._changed = asyncio.Event()
        self._is_updating = False
        """The generators' weights are on their way to a version that is not in the log yet."""
        self._num_tokens = context.begins.num_tokens
        self._num_episodes = context.begins.num_samples
        self._seconds_before = context.begins.seconds
        """Training time of earlier attempts."""
        self._started: float | None = None

    @property
    def version(self) -> int:
        """Updates done."""
        return self.context.progress.version

    async def run(self) -> Outcome:
        """Evolve until the budget is spent or a stop is asked for.

        Raises ``RunFailed`` when a generator or an environment fails, when the generators' weights
        no longer agree, or when the run stands still.
        """
        generators = range(len(self.context.generators.handles))
        try:
            return await supervised(
                self._evolve(),
                [
                    *(self.context.generators.pump(index) for index in generators),
                    *(self._evaluate_members(index) for index in generators),
                    self.context.wake(self._changed),
                    self.context.progress.alarm.watch(),
                ],
            )
        except Exception:  # whatever it is: what was learned is kept, and it is raised on
            if not self._is_updating:
                await self.context.save_after_failure(self.state, self._save)
            raise

    def state(self) -> LoopState:
        """What is needed to go on from the present version. Members that were evaluated for an
        update that was not made are evaluated again: their seeds follow from the version."""
        context, done = self.context, self.version * self.method.members_per_generation
        return LoopState(
            version=self.version,
            evaluated=context.progress.evaluated,
            seconds=context.trained_seconds(self._started, self._seconds_before),
            num_tokens=self._num_tokens,
            num_samples=self._num_episodes,
            ledger=Ledger(issued=done, trained=done),
        )

    # -- members ---------------------------------------------------------------------------------

    async def _evaluate_members(self, generator: int) -> None:
        """Consumes seeds; produces fitness; waits for admission; unblocked by an update."""
        generators = self.context.generators
        while True:
            while not self._may_issue():
                self._changed.clear()
                await self._changed.wait()
            position = self.ledger.issued % self.method.members_per_generation
            self.ledger = self.ledger.issue()
            seed = self._seeds()[position]
            sigma, noise = self._sigma(), self.method.noise_key
            await generators.ask(generator, partial(_perturb, seed=seed, sigma=sigma, noise=noise))
            played = await generators.play(self._cases(position), generator)
            self._finished.append(Member(position, seed, tuple(played)))
            self.ledger = self.ledger.complete()
            self._changed.set()

    def _may_issue(self) -> bool:
        started = self.ledger.issued - self.ledger.num_dropped
        room = admissible(
            self.version,
            started,
            max_staleness=STALENESS_BOUND,
            batch_size=self.method.members_per_generation,
        )
        wanted = self.version < self.context.config.budget.max_steps
        return self._open and wanted and room > 0 and not self.context.stop.is_set()

    def _seeds(self) -> list[int]:
        return member_seeds(
            self.context.config.seed, self.version, self.method.members_per_generation
        )

    def _sigma(self) -> float:
        return self.method.sigma_at(self.version, self.context.config.budget.max_steps)

    def _alpha(self) -> float:
        return self.method.alpha_at(self.version, self.context.config.budget.max_steps)

    def _cases(self, position: int) -> list[EpisodeRequest]:
        """The episodes of a member: the same tasks for all members of a generation."""
        temperature = self.context.config.rollout.temperature
        assert temperature is not None  # resolved at validation
        count = self.method.cases_per_member
        first = self.version * count if self.method.draws_new_cases else 0
        return [
            self.context.training_request(first + case, f"g{self.version}m{position}", temperature)
            for case in range(count)
        ]

    # -- updates ---------------------------------------------------------------------------------

    async def _evolve(self) -> Outcome:
        """Consumes populations; produces versions; waits for the last member."""
        context, max_steps = self.context, self.context.config.budget.max_steps
        await self.prover.open()
        await self._make_logged_updates()
        context.reporter.status("running", "Evaluating the unperturbed policy.")
        await context.evaluate_at_start()
        context.reporter.status("running", "Evolving.")
        self._started = context.started(self._seconds_before)
        while self.version < max_steps and not context.out_of_time(self._started):
            step_started = context.stopwatch()
            self._open = True
            self._changed.set()
            population = await self._population()
            self._open = False
            if population is None:
                break
            await self._update(population, step_started)
            await context.after_update(self.state, self._save)
        if self.version == context.begins.version and context.stop.is_set():
            return "stopped"  # nothing was learned: there is nothing to save
        return await context.conclude(self.state, self._save)

    async def _make_logged_updates(self) -> None:
        """Make the updates again that an earlier attempt had made after its checkpoint.

        Only their members are not evaluated again. What was reported of them is said once more.
        """
        context = self.context
        for update in self._logged:
            state = update.state
            words = f"Making update {state.version} again, from its log."
            context.reporter.status("running", words)
            reports = await self._updated(state.version, update.seeds, update.coefficients)
            refuse_other_weights(reports, update.checksum, state.version)
            context.progress.version = state.version
            (await self.prover.agree(state.version, reports)).refuse()
            self.ledger, self._seconds_before = state.ledger, state.seconds
            self._num_tokens, self._num_episodes = state.num_tokens, state.num_samples
            context.reporter.histograms(state.version, update.counts)
            context.reporter.step(state.version, update.points)
            context.progress.reported = state.version
            await self._keep(update)
            await context.after_update(self.state, self._save)

    async def _keep(self, update: Update) -> None:
        """Add an update that was made and reported to the log. Raises ``RunFailed`` without room:
        the run could not be made again from there on."""
        try:
            await asyncio.to_thread(self._append, update)
        except OSError as error:
            raise RunFailed(
                f"Update {update.state.version} could not be written to the run's log: {error}. "
                "The run can go on from the update before it, when there is room."
            ) from error
        self._is_updating = False

    def _append(self, update: Update) -> None:
        checkpoints = self.context.checkpoints
        with checkpoints.claim.held():
            append_update(checkpoints.folder / UPDATES, update)

    async def _updated(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float]
    ) -> list[UpdateReport]:
        """Every generator's report of an update that all of them have made."""
        self._is_updating = True
        reports = await self.context.generators.update(
            version, seeds, coefficients, self.method.noise_key
        )
        return reports

    def _admit(self, is_open: bool) -> None:
        self._open = is_open
        self._changed.set()

    async def _population(self) -> list[Member] | None:
        """A whole generation in canonical order; None when the run should stop instead."""
        size = self.method.members_per_generation
        self.context.progress.activity = "starved"
        while len(self._finished) < size:
            if self.context.stop.is_set():
                return None
            self._changed.clear()
            if not await heed(self.context, self._changed, self._admit):
                await self._changed.wait()
        population = sorted(self._finished, key=lambda member: member.position)
        self._finished = []
        self.ledger = self.ledger.reserve(size)
        return population

    async def _update(self, population: Sequence[Member], step_started: float) -> None:
        """Apply the weighted noise on every generator and report the generation."""
        context = self.context
        context.progress.activity = "updating"
        sigma, alpha = self._sigma(), self._alpha()
        fitness = [member.fitness for member in population]
        self._refuse_non_finite(fitness)
        learned_from = fitness
        if context.config.control == "shuffled_rewards":
            key = (context.config.seed, self.version)
            learned_from = [float(f) for f in np.random.default_rng(key).permutation(fitness)]
        coefficients = self.method.coefficients(learned_from, alpha)
        trajectories = [t for member in population for t in member.trajectories]
        account = staleness_account(trajectories, self.version)
        evaluated_at = context.stopwatch()
        seeds = [member.seed for member in population]
        reports = await self._updated(self.version + 1, seeds, coefficients)
        context.progress.version += 1
        proof = await self.prover.agree(self.version, reports)
        self.ledger = self.ledger.train(len(population))
        now = context.stopwatch()
        num_sampled = sum(t.num_actions for t in trajectories)
        self._num_tokens += num_sampled
        self._num_episodes += len(trajectories)
        counts = staleness_counts(account)
        points = [
            *_fitness_points(fitness),
            point(m.REWARD_MEAN, float(np.mean(fitness))),
            point(m.REWARD_STD, float(np.std([t.reward for t in trajectories]))),
            point(m.ZERO_VARIANCE_GROUPS, float(not has_signal(fitness))),
            *staleness_points(account),
            *rollout_points(trajectories),
            *sampling_points(num_sampled, now - step_started, self._num_tokens),
            *sync_points(proof),
            point(m.SIGMA, sigma),
            point(m.ALPHA, alpha),
            *_update_points(reports[0], alpha, len(population)),
            point(m.STEP_SECONDS, now - step_started),
            point(m.GENERATE_SECONDS, evaluated_at - step_started),
            point(m.PUBLISH_SECONDS, now - evaluated_at),
            point(m.TOTAL_SAMPLES, self._num_episodes),
            point(m.EVALUATIONS, self._num_episodes),
        ]
        context.reporter.histograms(self.version, counts)
        context.reporter.step(self.version, points)
        context.progress.reported = self.version
        context.reporter.trajectories(self.version, trajectories)
        refuse_disagreement([report.checksum for report in reports], self.version)
        proof.refuse()
        made = (tuple(seeds), tuple(coefficients), tuple(fitness), sigma, alpha)
        checksum = reports[0].checksum
        await self._keep(Update(self.state(), *made, checksum, tuple(points), counts))

    def _refuse_non_finite(self, fitness: Sequence[float]) -> None:
        wrong = non_finite(fitness)
        if wrong:
            raise RunFailed(
                f"The environment {self.context.config.environment.title!r} paid a reward that is "
                f"not finite: the fitness of member {wrong[0]} of generation {self.version} is "
                f"{fitness[wrong[0]]}. The weights were not updated with it; checkpoints that "
                "were saved before are safe."
            )

    async def _save(self, folder: Path) -> None:
        await self.context.generators.ask(0, lambda handle: handle.save(str(folder)))


async def _perturb(handle: GeneratorHandle, *, seed: int, sigma: float, noise: str) -> None:
    await handle.perturb(seed, sigma, noise)


def _update_points(report: UpdateReport, alpha: float, num_members: int) -> list[Point]:
    law = update_norm_law(alpha, report.num_parameters, num_members)
    return [
        point(m.UPDATE_NORM, report.update_norm),
        point(m.UPDATE_NORM_LAW, law),
        point(m.DRIFT_NORM, report.drift_norm),
    ]


def _fitness_points(fitness: Sequence[float]) -> list[Point]:
    statistics = {
        "mean": float(np.mean(fitness)),
        "min": min(fitness),
        "max": max(fitness),
        "std": float(np.std(fitness)),
    }
    return [point(m.FITNESS, value, stat=stat) for stat, value in statistics.items()]
