"""Generators prove what they hold before they are given episodes.

::

                   ┌─────────── once more, to those without proof ────────────┐
                   ▼                                                          │
    trainer ─▶ publish ─▶ checksums ─▶ canary ─▶ trainer's log-probabilities ─▶ verdicts ─▶ trust
                                                                                    └─▶ end of run

An update of an evolution strategy has no trainer beside it: checksums and answers of the generators
must agree with each other, and the answers must move when the weights did. It cannot be repeated.
The first version is proved in two parts: generators that agree may play, and the first update waits
for the trainer's word on what they answered. A generator that takes the place of one that died is
given what the others hold, and must answer as they did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

from lagoon.trajectory import TrainingSample
from workers.canary import (
    NUM_OPENINGS,
    NUM_TOKENS,
    Answers,
    Scores,
    are_equal,
    as_samples,
    canary_prompts,
    comparable,
    described,
    have_moved,
)
from workers.failures import environment_failed
from workers.handles import UpdateReport
from workers.loops.context import LoopContext, unless_stopped
from workers.loops.heeding import brief
from workers.proof import (
    TOLERANCE_NATS,
    VISIBLE_STEP,
    Expected,
    Proof,
    Verdict,
    judged,
    once,
)
from workers.reporting import sync_points
from workers.rollout import EpisodeFailure, EpisodeRequest

logger = logging.getLogger(__name__)

GREEDY_TEMPERATURE = 1.0
"""An engine reports the log-probability of a greedy token at this temperature."""


class Predictor(Protocol):
    """The trainer, as far as it is needed to prove what it publishes."""

    async def weights(self) -> tuple[Any, str]:
        """The current weights (or a reference to them) and their checksum."""
        ...

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        """Log-probabilities of each sample's own tokens under the current weights."""
        ...


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a generator answered, and what was made of it."""

    answers: Answers
    predicted: Scores | None
    """The trainer's log-probabilities of the answers."""
    verdict: Verdict


class Prover:
    """Publishes a run's weights, and has its generators prove that they hold them."""

    def __init__(self, context: LoopContext) -> None:
        self._context, self._generators = context, context.generators
        dtype = context.config.model.dtype
        self._tolerance, self._visible_step = TOLERANCE_NATS[dtype], VISIBLE_STEP[dtype]
        self._prompts: list[list[int]] = []
        self._known: dict[int, Testimony] = {}
        """What each generator said last."""
        self._is_confirmed = False
        self._published: tuple[int, Any, str] | None = None
        """Version, weights and checksum of the last publish; None while the generators hold what
        they began with."""
        self._changing = asyncio.Lock()
        """Held while generators are given weights."""

    async def open(self) -> None:
        """Choose the canary prompts, and trust the generators if they agree with each other.

        Raises ``RunFailed`` when they do not.
        """
        self._prompts = await self._choose()
        logger.info("Canary prompts: %s.", described(self._prompts))
        version = self._context.progress.version
        everyone = range(len(self._generators.handles))
        proof = await self._among_themselves(version, [""] * len(everyone), visible=False)
        if proof.num_mismatched:
            self._context.reporter.step(version, sync_points(proof))
        proof.refuse()

    async def confirm(self, trainer: Predictor) -> None:
        """Have the trainer confirm what the generators answered first. Once; then it is nothing.

        Raises ``RunFailed`` when the trainer's weights are others.
        """
        if self._is_confirmed:
            return
        version = self._context.progress.version
        answers = {index: said.answers for index, said in self._known.items()}
        self._known = await self._by_trainer(version, trainer, answers)
        proof = once(version, _verdicts(self._known))
        self._context.reporter.step(version, sync_points(proof))
        proof.refuse()
        self._is_confirmed = True

    async def publish(self, version: int, trainer: Predictor) -> Proof | None:
        """Publish the trainer's weights as ``version``, and trust the generators that prove them.
        None when a stop was heard while episodes in flight or a replacement were waited for.

        Those that do not are published to once more, and what they played meanwhile is lost. One
        that dies is left out: it has nothing to prove; but one at least must prove it. The trainer
        must not step meanwhile.
        """
        async with self._changing:
            if not await self._are_ready():
                return None
            self._published = None  # one copy of the weights is enough
            weights, checksum = await trainer.weights()

            async def try_on(asked: list[int]) -> dict[int, Testimony]:
                arrived = await self._generators.publish(version, weights, asked)
                said = await self._by_trainer(version, trainer, await self._ask(arrived))
                return {i: _with_checksum(each, arrived[i] == checksum) for i, each in said.items()}

            living = self._generators.living
            first, last = await self._tried_twice(version, living, try_on)
            while not last:  # nobody lived to the end: a replacement is the first to prove it
                await unless_stopped(self._context.stop, self._generators.some_live())
                if self._context.stop.is_set():
                    return None
                living = self._generators.living
                first, last = await self._tried_twice(version, living, try_on)
            self._known, self._published = last, (version, weights, checksum)
            proof = Proof(version, _verdicts(first), _verdicts(last))
            await self._trust(proof.proven)
            return proof

    async def _are_ready(self) -> bool:
        """Whether the generators can be given weights: in the mode that waits, when what they play
        is over. Nobody is welcomed meanwhile, who would begin something new."""
        if self._context.config.rollout.weight_update_mode != "wait":
            return True
        progress = self._context.progress
        activity, progress.activity = progress.activity, "starved"
        try:
            await unless_stopped(self._context.stop, self._generators.drain())
        finally:
            progress.activity = activity
        return not self._context.stop.is_set()

    async def _tried_twice(
        self,
        version: int,
        generators: list[int],
        try_on: Callable[[list[int]], Awaitable[dict[int, Testimony]]],
    ) -> tuple[dict[int, Testimony], dict[int, Testimony]]:
        """What generators said at first and at last; those that died said nothing."""
        first = self._of_the_same(await try_on(generators))
        failed = [index for index, said in first.items() if said.verdict.fault]
        if not failed:
            return first, first
        self._generators.distrust(failed)
        for index in failed:
            fault = first[index].verdict.fault
            logger.warning("Generator %s, version %s: %s. Again.", index, version, fault)
        proved = {index: said for index, said in first.items() if index not in failed}
        return first, self._of_the_same(proved | await try_on(failed))

    def _of_the_same(self, said: dict[int, Testimony]) -> dict[int, Testimony]:
        """Without what was said by generators that have died since, whoever has their place now."""
        return {index: each for index, each in said.items() if index in self._generators.given}

    async def welcome(self) -> Proof:
        """Give generators that have taken the place of others what these hold, and trust them when
        they answer like them. The trainer may be past that version: it is not asked.
        """
        async with self._changing:
            newcomers = sorted(self._generators.newcomers)  # none: a publish has come before
            version, weights, checksum = self._published or (self._context.begins.version, None, "")
            other, reference = next(iter(self._known.items()))

            async def try_on(asked: list[int]) -> dict[int, Testimony]:
                arrived = dict.fromkeys(asked, "")
                if weights is None:
                    self._generators.newcomers.difference_update(asked)
                else:
                    arrived = await self._generators.publish(version, weights, asked)
                said = {}
                for index, given in (await self._ask(arrived)).items():
                    scores = comparable(reference.answers, given)
                    expected = Expected(scores, f"generator {other}'s", self._tolerance)
                    verdict = judged(given, version, expected, is_stuck=False)
                    testimony = Testimony(given, None, verdict)
                    said[index] = _with_checksum(testimony, arrived[index] == checksum)
                return said

            first, last = await self._tried_twice(version, newcomers, try_on)
            self._known |= last
            proof = Proof(version, _verdicts(first), _verdicts(last))
            await self._trust(proof.proven)
            return proof

    async def _trust(self, proven: Sequence[int]) -> None:
        """Trust generators. Those that have taken the place of others are told first at which pace
        to play: during a pause, to sample nothing. Before, they had to answer."""
        unbriefed = self._generators.unbriefed.intersection(proven)
        self._generators.unbriefed -= unbriefed
        await brief(self._context, unbriefed)
        self._generators.trust(proven)

    async def agree(self, version: int, reports: Sequence[UpdateReport]) -> Proof:
        """Trust generators that applied the same ES update if they agree with each other."""
        norm, count = reports[0].update_norm, reports[0].num_parameters
        visible = norm / sqrt(count) >= self._visible_step
        checksums = [report.checksum for report in reports]
        return await self._among_themselves(version, checksums, visible=visible)

    async def _choose(self) -> list[list[int]]:
        context = self._context
        # Held-out tasks: a training task that cannot be made is for training to meet.
        indices = [context.heldout[at % len(context.heldout)] for at in range(NUM_OPENINGS)]
        requests = [
            EpisodeRequest(f"canary/{at}", f"heldout/{index}", "heldout", index, 0.0)
            for at, index in enumerate(indices)
        ]
        openings = await self._generators.ask(0, lambda handle: handle.openings(requests))
        if isinstance(openings, EpisodeFailure):
            raise environment_failed(openings)
        config = context.config
        return canary_prompts(openings, config.seed, config.model.max_length_tokens)

    async def _ask(self, generators: Iterable[int]) -> dict[int, Answers]:
        return await self._generators.of_living(
            lambda handle: handle.probe(self._prompts, NUM_TOKENS),
            [index for index in generators if index in self._generators.given],
        )

    async def _among_themselves(
        self, version: int, checksums: Sequence[str], *, visible: bool
    ) -> Proof:
        """A proof without a trainer: each against the first."""
        everyone = range(len(self._generators.handles))
        answers = await self._ask(everyone)
        known, self._known = self._known, {}
        for index in everyone:
            before = known.get(index)
            is_stuck = visible and before is not None and are_equal(before.answers, answers[index])
            expected = None
            if index:
                scores = comparable(answers[0], answers[index])
                expected = Expected(scores, "generator 0's", self._tolerance)
            verdict = judged(answers[index], version, expected, is_stuck=is_stuck)
            said = Testimony(answers[index], None, verdict)
            self._known[index] = _with_checksum(said, checksums[index] == checksums[0])
        proof = once(version, _verdicts(self._known))
        self._generators.trust(proof.proven)
        return proof

    async def _by_trainer(
        self, version: int, trainer: Predictor, answers: dict[int, Answers]
    ) -> dict[int, Testimony]:
        """What generators answered, held against the trainer's log-probabilities.

        Generators that answered alike are scored once, and apart from those that did not: the same
        tokens then get the same scores from the same weights, bit for bit.
        """
        scored: dict[tuple[tuple[int, ...], ...], Scores] = {}
        found = {}
        for index, given in answers.items():
            key = tuple(tuple(answer.token_ids) for answer in given)
            if key not in scored:
                samples = as_samples(self._prompts, given)
                scored[key] = await trainer.logprobs(samples, GREEDY_TEMPERATURE)
            expected = Expected(scored[key], "the trainer's", self._tolerance)
            is_stuck = self._is_stuck(index, given, scored[key])
            verdict = judged(given, version, expected, is_stuck=is_stuck)
            found[index] = Testimony(given, scored[key], verdict)
        return found

    def _is_stuck(self, generator: int, answers: Answers, predicted: Scores) -> bool:
        """Whether it answers as before, while the trainer's view of those answers has moved."""
        before = self._known.get(generator)
        return (
            before is not None
            and before.predicted is not None
            and are_equal(before.answers, answers)
            and have_moved(before.predicted, predicted)
        )


def _with_checksum(said: Testimony, is_right: bool) -> Testimony:
    """Another checksum explains all else that may be wrong."""
    if is_right:
        return said
    fault = "the checksum of what arrived is another"
    verdict = Verdict(fault, said.verdict.logprob_diff)
    return Testimony(said.answers, said.predicted, verdict)


def _verdicts(said: dict[int, Testimony]) -> dict[int, Verdict]:
    return {index: said[index].verdict for index in sorted(said)}
