"""Generators that hold other weights than they say, and how soon it is noticed."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from lagoon import metrics as m
from lagoon.trajectory import TrainingSample
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from workers.failures import RunFailed
from workers.handles import UpdateReport
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.proving import Prover
from workers.rollout import EpisodeFailure, EpisodeRequest, Sampled

Fault = Literal["withheld", "stale", "late"]
FAULTS: tuple[Fault, ...] = ("withheld", "stale", "late")
NUM_PUBLISHES = 6
SEEDS = range(100)
Weights = tuple[float, ...]


def scores(weights: Weights, prompt: Sequence[int], count: int, noise: float = 0.0) -> list[float]:
    """Log-probabilities that move smoothly with the weights, in float32."""
    slope = np.random.default_rng(sum(prompt)).normal(size=(count, len(weights)))
    exact = -1.0 - np.abs(slope @ np.asarray(weights)) + noise
    return [float(score) for score in exact.astype(np.float32)]


class Engine(FakeGenerator):
    """Answers with the weights that it really computes with; goes wrong at one publish."""

    def __init__(self, start: Weights, fault: Fault | None, at: int, tries: int) -> None:
        super().__init__(lambda request, generator: 0.0)
        self.computes: Weights = start
        self.cached: dict[tuple[int, ...], Weights] = {}
        self._fault, self._at, self._tries = fault, at, tries

    async def publish(self, version: int, weights: Any) -> str:
        goes_wrong = version == self._at and self._tries > 0
        self._tries -= goes_wrong
        fault = self._fault if goes_wrong else None
        if fault != "stale":
            self.cached = {}
        if fault in (None, "stale"):
            self.computes = weights
        self.version = version - (fault == "late")
        return f"sum-of-{weights}"  # of what arrived, whatever became of it

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        return [self._answer(tuple(prompt), num_tokens) for prompt in prompts]

    def _answer(self, prompt: tuple[int, ...], count: int) -> Sampled:
        cached = 128 if len(prompt) > 64 and prompt in self.cached else 0
        seen = self.cached.setdefault(prompt, self.computes)
        mixed = tuple((old + new) / 2 for old, new in zip(seen, self.computes, strict=True))
        found = scores(mixed, prompt, count, noise=1e-7)
        return Sampled([5] * count, found, [self.version] * count, "length", cached)


class Trainer(FakeTrainer):
    """Its weights take a random step for every version."""

    def __init__(self, start: Weights, step: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.now, self._step, self._rng = start, step, rng

    def advance(self) -> None:
        moves = self._rng.normal(size=len(self.now)) * self._step
        self.now = tuple(float(old + move) for old, move in zip(self.now, moves, strict=True))

    async def weights(self) -> tuple[Any, str]:
        return self.now, f"sum-of-{self.now}"

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        assert temperature == 1.0
        found = []
        for sample in samples:
            given = sample.trajectory.action_mask.index(1)
            prompt = sample.trajectory.token_ids[:given]
            found.append(scores(self.now, prompt, sample.trajectory.num_actions))
        return found


class Drill:
    """A few publishes to a few engines, one of which goes wrong once or for good."""

    def __init__(self, seed: int, fault: Fault | None, tries: int, folder: Path) -> None:
        rng = np.random.default_rng((seed, 7))
        start = tuple(float(weight) for weight in rng.normal(size=8))
        # From steps that no tolerance could tell from noise to very large ones.
        self.trainer = Trainer(start, 10 ** rng.uniform(-5, -1), rng)
        self.at = int(rng.integers(1, NUM_PUBLISHES + 1))
        self.wrong = int(rng.integers(0, 3))
        self.engines = [
            Engine(start, fault if index == self.wrong else None, self.at, tries)
            for index in range(int(rng.integers(self.wrong + 1, 4)))
        ]
        config = grpo_config(seed=seed)
        self.context, _ = loop_context(config, self.engines, folder)
        self.prover = Prover(self.context)

    async def mismatches(self) -> dict[int, int]:
        """Generators without proof at first, by version; raises when one stays so."""
        await self.prover.open()
        await self.prover.confirm(self.trainer)
        found = {}
        for version in range(1, NUM_PUBLISHES + 1):
            self.trainer.advance()
            self.context.progress.version = version
            proof = await self.prover.publish(version, self.trainer)
            assert proof is not None
            found[version] = proof.num_mismatched
            proof.refuse()
        return found


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_caught_at_the_publish_that_it_happens_at(
    fault: Fault, tmp_path: Path
) -> None:
    for seed in SEEDS:
        drill = Drill(seed, fault, 2, tmp_path)
        with pytest.raises(RunFailed) as caught:
            await drill.mismatches()
        wrong = f"Generator {drill.wrong} does not hold the weights of version {drill.at}: "
        assert str(caught.value).startswith(wrong), seed
        assert ", at the second try, too." in str(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_that_a_second_publish_repairs_is_counted_once(
    fault: Fault, tmp_path: Path
) -> None:
    for seed in SEEDS:
        drill = Drill(seed, fault, 1, tmp_path)
        found = await drill.mismatches()
        assert {version for version, count in found.items() if count} == {drill.at}, seed
        assert found[drill.at] == 1


async def test_right_publishes_are_never_blamed(tmp_path: Path) -> None:
    for seed in SEEDS:
        found = await Drill(seed, None, 0, tmp_path).mismatches()
        assert set(found.values()) == {0}


async def test_a_step_that_changes_nothing_is_no_fault(tmp_path: Path) -> None:
    drill = Drill(0, None, 0, tmp_path)
    drill.trainer.advance = lambda: None  # type: ignore[method-assign]
    assert set((await drill.mismatches()).values()) == {0}


async def test_a_generator_without_proof_is_given_no_episodes(tmp_path: Path) -> None:
    good, bad = FakeGenerator(lambda *_: 0.0), FakeGenerator(lambda *_: 0.0)
    context, _ = loop_context(grpo_config(), [good, bad], tmp_path)
    generators, ids = context.generators, itertools.count()

    async def played(count: int, named: int | None = None) -> list[asyncio.Task[Any]]:
        requests = [EpisodeRequest(str(next(ids)), "p", "train", 0, 1.0) for _ in range(count)]
        tasks = [asyncio.create_task(generators.play([each], named)) for each in requests]
        await asyncio.sleep(0)
        return tasks

    waiting = await played(2)
    assert (good.calls, bad.calls) == ([], [])  # nobody has proved anything
    generators.trust([0])
    generators.trust([1])
    await generators.publish(1, "weights", [1])
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    waiting += await played(4)
    waiting += await played(1, named=1)
    assert [call[0] for call in bad.calls] == ["publish"]
    assert len(good.calls) == 6
    generators.trust([1])
    pumps = [asyncio.create_task(generators.pump(index)) for index in (0, 1)]
    await asyncio.gather(*waiting)
    for pump in pumps:
        pump.cancel()
    assert [call[0] for call in bad.calls] == ["publish", "play"]


async def test_the_first_version_is_confirmed_before_anything_is_trained(tmp_path: Path) -> None:
    class Stranger(FakeTrainer):
        async def logprobs(self, samples: Any, temperature: Any = None) -> list[list[float]]:
            return [[-9.0] * sample.trajectory.num_actions for sample in samples]

    trainer = Stranger()
    context, sink = loop_context(grpo_config(), [FakeGenerator(lambda *_: 0.0)], tmp_path)
    with pytest.raises(RunFailed, match="does not hold the weights of version 0: its log-prob"):
        await PolicyGradientLoop(context, trainer).run()
    assert trainer.batches == []
    assert sink.values(m.MISMATCHED_ENGINES) == {0: 1.0}


async def test_generators_that_start_with_other_weights_play_nothing(tmp_path: Path) -> None:
    class Other(FakeGenerator):
        async def probe(self, *arguments: Any) -> list[Sampled]:
            self.weights = "another model"
            return await super().probe(*arguments)

    generators = [FakeGenerator(lambda *_: 0.0), Other(lambda *_: 0.0)]
    context, sink = loop_context(grpo_config(), generators, tmp_path)
    with pytest.raises(RunFailed, match=r"Generator 1 .* nats away from generator 0's"):
        await PolicyGradientLoop(context, FakeTrainer()).run()
    assert all(generator.calls == [] for generator in generators)
    assert sink.values(m.MISMATCHED_ENGINES) == {0: 1.0}


async def test_an_environment_that_raises_at_its_start_ends_the_run_as_itself(
    tmp_path: Path,
) -> None:
    class Broken(FakeGenerator):
        async def openings(self, requests: Any) -> list[list[int]] | EpisodeFailure:
            return EpisodeFailure("t", "KeyError: 'board'", "traceback")

    context, _ = loop_context(grpo_config(), [Broken(lambda *_: 0.0)], tmp_path)
    with pytest.raises(RunFailed, match="The environment raised an error: KeyError"):
        await PolicyGradientLoop(context, FakeTrainer()).run()


class Member(FakeGenerator):
    """An ES generator that goes wrong at its second update."""

    def __init__(self, fault: str) -> None:
        super().__init__(lambda request, generator: float((generator.perturbed_with or 0) % 7))
        self.fault = fault
        self.cached = 0

    async def update(self, version: int, *arguments: Any) -> UpdateReport:
        before = self.weights
        report = await super().update(version, *arguments)
        if version == 2:
            if self.fault == "withheld":
                self.weights = before
            self.version -= self.fault == "late"
            self.cached = 128 if self.fault == "stale" else 0
        return report

    async def probe(self, *arguments: Any) -> list[Sampled]:
        found = await super().probe(*arguments)
        return [Sampled(f.token_ids, f.logprobs, f.versions, f.finish, self.cached) for f in found]


def evolution(faults: Sequence[str], folder: Path) -> tuple[EvolutionLoop, ListSink]:
    context, sink = loop_context(es_config(), [Member(fault) for fault in faults], folder)
    return EvolutionLoop(context), sink


@pytest.mark.parametrize("others", [[], [""]])
@pytest.mark.parametrize("fault", FAULTS)
async def test_an_es_update_that_did_not_reach_the_engine_is_caught(
    fault: str, others: list[str], tmp_path: Path
) -> None:
    loop, sink = evolution([*others, fault], tmp_path)
    wrong = f"Generator {len(others)} does not hold the weights of version 2: it"
    with pytest.raises(RunFailed, match=wrong):
        await loop.run()
    assert sink.values(m.MISMATCHED_ENGINES) == {1: 0.0, 2: 1.0}


async def test_es_generators_that_agree_are_proved_by_each_other(tmp_path: Path) -> None:
    loop, sink = evolution(["", ""], tmp_path)
    assert await loop.run() == "finished"
    assert set(sink.values(m.VERIFIED_ENGINES).values()) == {2.0}
    assert set(sink.values(m.CANARY_DIFF).values()) == {0.0}


async def test_one_es_generator_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    loop, sink = evolution([""], tmp_path)
    assert await loop.run() == "finished"
    assert set(sink.values(m.VERIFIED_ENGINES).values()) == {1.0}
    assert sink.values(m.CANARY_DIFF) == {}
