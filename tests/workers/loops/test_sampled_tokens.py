"""What a run has sampled for training, whatever became of it: the axis and the speed of a run."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.ledger import Ledger
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.loops.invariants import NUM_STEPS, PACED, UNFILTERED, overlapping
from tests.workers.streaming import Chance, ran
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import LoopState, read_state
from workers.resuming import Candidates, Restored, restored
from workers.rollout import EpisodeRequest


async def test_tokens_that_nothing_is_trained_on_are_sampled_tokens_of_their_step(
    tmp_path: Path,
) -> None:
    """Taking turns: a step has 2 groups of 3 with 2 tokens each, and one of 6 is dropped."""

    def reward(request: EpisodeRequest, _: FakeGenerator) -> float:
        name = request.trajectory_id
        is_odd = name.startswith("train/") and int(name.split("/")[1]) % 2
        return math.nan if is_odd and name.endswith("/2") else float(name.endswith("0"))

    config = overlapping({"name": "grpo", "group_size": 3})
    context, sink = loop_context(config, [FakeGenerator(reward)], tmp_path)
    await PolicyGradientLoop(context, FakeTrainer()).run()
    steps = range(1, NUM_STEPS + 1)
    assert sink.values(m.TOTAL_TOKENS) == {step: 12 * step for step in steps}
    speeds, seconds = sink.values(m.TOKENS_PER_SECOND), sink.values(m.STEP_SECONDS)
    assert [speeds[step] * seconds[step] for step in steps] == pytest.approx([12] * NUM_STEPS)
    assert sink.values(m.TOTAL_SAMPLES)[1] == 5


@pytest.mark.parametrize("method", [PACED | {"smoothing": 0.0}, UNFILTERED], ids=["pace", "all"])
async def test_what_is_rejected_or_accumulates_was_sampled_and_is_counted_on_by_who_goes_on(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    config = overlapping(method)
    first = await ran(config, tmp_path / "a", Chance(2))
    state = read_state(tmp_path / "a" / "step-000004")
    assert state.tokens is not None
    assert state.num_tokens == state.tokens.issued > state.tokens.trained
    sampled = first.sink.values(m.TOTAL_TOKENS)
    assert sampled[4] <= state.num_tokens <= sampled[5]
    assert list(sampled.values()) == sorted(sampled.values())
    begins = restored(config, Candidates((tmp_path / "a" / "step-000004",)))
    second = await ran(config, tmp_path / "b", Chance(3), begins=begins)
    assert second.sink.values(m.TOTAL_TOKENS)[5] > state.num_tokens
    assert second.loop.num_tokens == second.loop.pool.books.tokens.issued


async def test_a_run_of_other_prompts_counts_on_from_what_the_one_before_had_sampled(
    tmp_path: Path,
) -> None:
    begins = LoopState(4, -1, 0.0, 500, 40, ledger=Ledger(issued=8, trained=8))
    run = await ran(overlapping(UNFILTERED), tmp_path, Chance(0), begins=Restored(None, begins))
    state = read_state(tmp_path / "final")
    assert state.tokens is not None
    assert state.num_tokens == run.loop.num_tokens == 500 + state.tokens.issued
    again = await ran(
        overlapping(UNFILTERED, steps=8),
        tmp_path / "b",
        Chance(1),
        begins=Restored(None, replace(state, in_flight=())),
    )
    assert again.loop.num_tokens == 500 + again.loop.pool.books.tokens.issued
