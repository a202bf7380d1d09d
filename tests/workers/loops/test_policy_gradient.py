import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lagoon import metrics as m
from lagoon.config import RunConfig
from lagoon.drift import TokenScores
from lagoon.events import CheckpointLogged, TrajectoryLogged
from tests.builders import grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from workers.failures import RunFailed
from workers.loops.policy_gradient import PolicyGradientLoop, shuffled
from workers.rollout import EpisodeRequest
from workers.step_report import StepReport


def alternating(request: EpisodeRequest, generator: FakeGenerator) -> float:
    return float(request.trajectory_id.endswith("0"))


async def run(
    config: RunConfig, folder: Path, *, num_generators: int = 2, reward_of: Any = alternating
) -> tuple[str, ListSink, FakeTrainer, list[FakeGenerator]]:
    generators = [FakeGenerator(reward_of) for _ in range(num_generators)]
    trainer = FakeTrainer()
    context, sink = loop_context(config, generators, folder)
    loop = PolicyGradientLoop(context, trainer)
    outcome = await loop.run()
    return outcome, sink, trainer, generators


async def test_a_synchronous_run_trains_on_nothing_stale(tmp_path: Path) -> None:
    outcome, sink, trainer, _ = await run(grpo_config(), tmp_path)
    assert outcome == "finished"
    assert len(trainer.batches) == 3
    assert sink.histograms(m.TOTAL_HISTOGRAM) == {step: {0: 8} for step in (1, 2, 3)}
    assert sink.histograms(m.WORST_HISTOGRAM) == {step: {0: 4} for step in (1, 2, 3)}
    assert sink.histograms(m.SPAN_HISTOGRAM) == {step: {1: 4} for step in (1, 2, 3)}
    assert set(sink.values(m.STALENESS_COVERAGE).values()) == {1.0}


async def test_drift_is_told_with_its_cause_and_masked_tokens_by_their_age(tmp_path: Path) -> None:
    class Masking(FakeTrainer):
        async def step(self, samples: Any, learning_rate: float) -> StepReport:
            report = await super().step(samples, learning_rate)
            cut = TokenScores((-1.5, -1.0), (True, False), (False, False), (True, False))
            return replace(report, scores=(cut, *report.scores[1:]))

    context, sink = loop_context(grpo_config(), [FakeGenerator(alternating)], tmp_path)
    await PolicyGradientLoop(context, Masking()).run()
    assert sink.histograms(m.MASKED_HISTOGRAM) == {step: {0: 1} for step in (1, 2, 3)}
    counts = {p.labels["cause"]: p.value for _, p in sink.points(m.DRIFT_TOKENS)}
    assert counts == {"mismatch": 8, "lag": 0, "unknown": 0}
    assert set(sink.values(m.DRIFT_LOGPROB_ABS).values()) == {0.5 / 8}


async def test_generation_of_a_batch_starts_only_after_the_publish_before_it(
    tmp_path: Path,
) -> None:
    _, _, trainer, generators = await run(grpo_config(), tmp_path)
    for step, batch in enumerate(trainer.batches):
        assert {v for s in batch for v in s.trajectory.versions if v is not None} == {step}
    for generator in generators:
        publishes = [call[1] for call in generator.calls if call[0] == "publish"]
        assert publishes == [1, 2, 3]


async def test_every_prompt_is_trained_once_and_the_ledger_balances(tmp_path: Path) -> None:
    _, sink, trainer, _ = await run(grpo_config(), tmp_path)
    ids = [s.trajectory.trajectory_id for batch in trainer.batches for s in batch]
    assert len(ids) == len(set(ids)) == 3 * 2 * 2
    issued, trained = sink.values(m.LEDGER_ISSUED), sink.values(m.LEDGER_TRAINED)
    for step in (1, 2, 3):
        held = sum(
            sink.values(metric)[step]
            for metric in (m.POOL_GENERATING, m.POOL_READY, m.POOL_RESERVED)
        )
        assert issued[step] == trained[step] + held


async def test_advantages_and_weights_are_the_methods(tmp_path: Path) -> None:
    _, _, trainer, _ = await run(grpo_config(), tmp_path)
    for sample in trainer.batches[0]:
        assert sample.advantage == pytest.approx(
            1.0 if sample.trajectory.reward else -1.0, rel=1e-5
        )
        assert sample.token_weight == pytest.approx(1 / 8)


async def test_heldout_tasks_are_played_greedily_at_the_first_the_last_and_chosen_versions(
    tmp_path: Path,
) -> None:
    _, sink, _, generators = await run(grpo_config(), tmp_path)
    assert list(sink.values(m.HELDOUT_SUCCESS)) == [0, 2, 3]
    played = [call for g in generators for call in g.calls if call[1] == "heldout"]
    assert len(played) == 3 * 4
    assert len({call[2] for call in played}) == 4


async def test_a_stop_request_saves_the_weights_and_ends_as_stopped(tmp_path: Path) -> None:
    config = grpo_config(budget={"max_steps": 1000})
    generators = [FakeGenerator(alternating)]
    trainer = FakeTrainer()
    context, sink = loop_context(config, generators, tmp_path)
    loop = PolicyGradientLoop(context, trainer)
    step = trainer.step

    async def step_then_stop(*arguments: Any) -> StepReport:
        if loop.version == 4:
            context.stop.set()
        return await step(*arguments)

    trainer.step = step_then_stop  # type: ignore[method-assign]
    assert await loop.run() == "stopped"
    assert loop.version == 5
    assert [e.is_final for e in sink.events if isinstance(e, CheckpointLogged)][-1]


async def test_an_environment_that_raises_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    def broken(request: EpisodeRequest, generator: FakeGenerator) -> float:
        if request.split == "train":
            raise KeyError("no such board")
        return 0.0

    with pytest.raises(RunFailed, match="no such board"):
        await run(grpo_config(), tmp_path, reward_of=broken)


async def test_a_generator_that_dies_ends_the_run_naming_it(tmp_path: Path) -> None:
    class Dying(FakeGenerator):
        async def collect(self) -> Any:
            if self.version == 1:
                raise ConnectionError("the engine process is gone")
            return await super().collect()

    context, _ = loop_context(grpo_config(), [Dying(alternating)], tmp_path)
    loop = PolicyGradientLoop(context, FakeTrainer())
    with pytest.raises(RunFailed, match="Generator 0 failed: the engine process is gone"):
        await loop.run()


async def test_the_wall_clock_budget_ends_the_run(tmp_path: Path) -> None:
    config = grpo_config(budget={"max_steps": 1000, "max_seconds": 50})
    outcome, _, trainer, _ = await run(config, tmp_path)
    assert outcome == "finished"
    assert 1 < len(trainer.batches) < 50


async def test_checkpoints_are_kept_as_configured(tmp_path: Path) -> None:
    config = grpo_config(budget={"max_steps": 5}, checkpoint={"every_steps": 1, "keep": 2})
    _, sink, _, _ = await run(config, tmp_path)
    announced = [event for event in sink.events if isinstance(event, CheckpointLogged)]
    dropped = [Path(path).name for event in announced for path in event.dropped]
    assert dropped == ["step-000001", "step-000003"]  # the second was evaluated: it is the best
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "final",
        "step-000002",
        "step-000004",
        "step-000005",
    ]


async def test_a_trainer_that_cannot_load_its_model_ends_the_run(tmp_path: Path) -> None:
    class Broken(FakeTrainer):
        async def ready(self) -> None:
            raise RunFailed("The trainer could not start: no such model")

    trainer = Broken()
    context, _ = loop_context(grpo_config(), [FakeGenerator(alternating)], tmp_path)
    with pytest.raises(RunFailed, match="could not start"):
        await PolicyGradientLoop(context, trainer).run()
    assert trainer.batches == []


async def test_the_first_rollouts_do_not_wait_for_the_trainer(tmp_path: Path) -> None:
    played: list[str] = []

    def note(request: EpisodeRequest, generator: FakeGenerator) -> float:
        played.append(request.split)
        return alternating(request, generator)

    class Slow(FakeTrainer):
        async def ready(self) -> None:
            assert played.count("train") == 4  # two prompts, two rollouts each

    context, _ = loop_context(grpo_config(budget={"max_steps": 1}), [FakeGenerator(note)], tmp_path)
    assert await PolicyGradientLoop(context, Slow()).run() == "finished"


async def test_a_stop_is_heard_while_the_trainer_loads(tmp_path: Path) -> None:
    class Slow(FakeTrainer):
        async def ready(self) -> None:
            context.stop.set()
            await asyncio.Event().wait()

    trainer = Slow()
    context, _ = loop_context(grpo_config(), [FakeGenerator(alternating)], tmp_path)
    assert await PolicyGradientLoop(context, trainer).run() == "stopped"
    assert trainer.batches == []


async def test_a_generator_with_other_weights_is_counted_and_ends_the_run(tmp_path: Path) -> None:
    class Forgetful(FakeGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            await super().publish(version, weights)
            return "something else"

    generators = [FakeGenerator(alternating), Forgetful(alternating)]
    context, sink = loop_context(grpo_config(), generators, tmp_path)
    with pytest.raises(RunFailed, match="Generator 1 does not hold the weights of version 1: the"):
        await PolicyGradientLoop(context, FakeTrainer()).run()
    assert sink.values(m.VERIFIED_ENGINES) == {0: 2.0, 1: 1.0}
    assert sink.values(m.MISMATCHED_ENGINES) == {0: 0.0, 1: 1.0}


async def test_a_failing_call_names_the_generator_and_the_cause_behind_it(tmp_path: Path) -> None:
    class Wrapped(Exception):
        cause = ValueError("no space left in shared memory")

    class Full(FakeGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            raise Wrapped("remote traceback")

    context, _ = loop_context(grpo_config(), [Full(alternating)], tmp_path)
    with pytest.raises(RunFailed, match="Generator 0 failed: no space left") as caught:
        await PolicyGradientLoop(context, FakeTrainer()).run()
    assert caught.value.details == "remote traceback"


async def test_a_stop_during_the_first_evaluation_ends_the_run_at_once(tmp_path: Path) -> None:
    class Endless(FakeGenerator):
        async def submit(self, requests: Any) -> None:
            context.stop.set()

    context, sink = loop_context(grpo_config(), [Endless(alternating)], tmp_path)
    trainer = FakeTrainer()
    assert await PolicyGradientLoop(context, trainer).run() == "stopped"
    assert trainer.saved == []  # nothing was trained
    assert sink.values(m.HELDOUT_SUCCESS) == {}


async def test_the_learning_rate_follows_its_schedule(tmp_path: Path) -> None:
    config = grpo_config(trainer={"learning_rate": 1.0, "learning_rate_schedule": "linear"})
    _, sink, trainer, _ = await run(config, tmp_path)
    assert trainer.learning_rates == pytest.approx([1.0, 2 / 3, 1 / 3])
    assert list(sink.values(m.LEARNING_RATE).values()) == trainer.learning_rates


async def test_some_trajectories_of_each_step_can_be_read(tmp_path: Path) -> None:
    _, sink, _, _ = await run(grpo_config(), tmp_path)
    logged = [event for event in sink.events if isinstance(event, TrajectoryLogged)]
    assert {event.step for event in logged if event.split == "train"} == {1, 2, 3}
    assert {event.step for event in logged if event.split == "heldout"} == {0, 2, 3}


def test_the_shuffled_control_deals_out_the_same_rewards() -> None:
    rewards = [[1.0, 0.0, 2.0], [3.0], [4.0, 5.0]]
    dealt = shuffled(rewards, (1, 2))
    assert [len(group) for group in dealt] == [3, 1, 2]
    assert sorted(np.concatenate(dealt)) == [0, 1, 2, 3, 4, 5]
    assert dealt == shuffled(rewards, (1, 2))
    assert dealt != shuffled(rewards, (1, 3))
