"""Generators prove what they hold before they are given episodes.

::

                   ┌─────────── once more, to those without proof ────────────┐
                   ▼                                                          │
    trainer ─▶ publish ─▶ checksums ─▶ canary ─▶ trainer's log-probabilities ─▶ verdicts ─▶ trust
                                                                                    └─▶ end of run

An update of an evolution strategy has no trainer beside it: checksums and answers of the generators
must agree with each other, and the answers must move when the weights did. It cannot be repeated.
The first version is proved in two parts: generators that agree may play, and the first update waits
for the trainer's word on what they answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
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
from workers.generators import UpdateReport, environment_failed
from workers.loops.context import LoopContext
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
        self._everyone = range(len(context.generators.handles))
        dtype = context.config.model.dtype
        self._tolerance, self._visible_step = TOLERANCE_NATS[dtype], VISIBLE_STEP[dtype]
        self._prompts: list[list[int]] = []
        self._known: dict[int, Testimony] = {}
        """What each generator said last."""
        self._is_confirmed = False

    async def open(self) -> None:
        """Choose the canary prompts, and trust the generators if they agree with each other.

        Raises ``RunFailed`` when they do not.
        """
        self._prompts = await self._choose()
        logger.info("Canary prompts: %s.", described(self._prompts))
        version = self._context.progress.version
        proof = await self._among_themselves(version, [""] * len(self._everyone), visible=False)
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
        answers = {index: self._known[index].answers for index in self._everyone}
        self._known = await self._by_trainer(version, trainer, answers)
        proof = once(version, [self._known[index].verdict for index in self._everyone])
        self._context.reporter.step(version, sync_points(proof))
        proof.refuse()
        self._is_confirmed = True

    async def publish(self, version: int, trainer: Predictor) -> Proof:
        """Publish the trainer's weights as ``version`` and trust the generators that prove them.

        Those that do not are published to once more. The trainer must not step meanwhile.
        """
        weights, checksum = await trainer.weights()

        async def try_on(generators: Iterable[int]) -> dict[int, Testimony]:
            asked = list(generators)
            received = await self._generators.publish(version, weights, asked)
            arrived = dict(zip(asked, received, strict=True))
            said = await self._by_trainer(version, trainer, await self._ask(asked))
            return {i: _with_checksum(said[i], arrived[i] == checksum) for i in asked}

        first = last = await try_on(self._everyone)
        failed = [index for index in self._everyone if first[index].verdict.fault]
        if failed:
            for index in failed:
                fault = first[index].verdict.fault
                logger.warning("Generator %s, version %s: %s. Again.", index, version, fault)
            last = first | await try_on(failed)
        self._known = last
        proof = Proof(version, _verdicts(first), _verdicts(last))
        self._generators.trust(proof.proven)
        return proof

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
        asked = list(generators)
        answers = await self._generators.each(
            lambda handle: handle.probe(self._prompts, NUM_TOKENS), asked
        )
        return dict(zip(asked, answers, strict=True))

    async def _among_themselves(
        self, version: int, checksums: Sequence[str], *, visible: bool
    ) -> Proof:
        """A proof without a trainer: each against the first."""
        answers = await self._ask(self._everyone)
        known, self._known = self._known, {}
        for index in self._everyone:
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


def _verdicts(said: dict[int, Testimony]) -> tuple[Verdict, ...]:
    return tuple(said[index].verdict for index in sorted(said))
