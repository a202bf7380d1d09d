"""Tokens of finished episodes whose groups are not finished: in the books, and in no checkpoint."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lagoon import metrics as m
from lagoon.trajectory import TrainingSample
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import UNFILTERED, overlapping
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer, ran
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import read_state
from workers.resuming import Candidates, restored
from workers.step_report import StepReport

CONFIG = overlapping(UNFILTERED | {"group_size": 3})


@pytest.mark.parametrize("seed", range(3))
async def test_tokens_in_flight_are_those_of_finished_members_of_unfinished_groups(
    tmp_path: Path, seed: int
) -> None:
    chance = Chance(seed, most_tokens=12)
    seen: list[int] = []

    class Looking(StreamingTrainer):
        async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
            report = await super().step(samples, learning_rate)
            unfinished = sum(each.num_actions for each in loop.admission.unfinished)
            tokens = loop.pool.books.tokens
            assert tokens.generating == unfinished
            assert tokens.is_balanced
            seen.append(unfinished)
            return report

    context, sink = loop_context(CONFIG, [StreamingGenerator(chance) for _ in "ab"], tmp_path)
    loop = PolicyGradientLoop(context, Looking(chance))
    assert await loop.run() == "finished"
    told = {
        s: p.value for s, p in sink.points(m.LEDGER_TOKENS) if p.labels["place"] == "generating"
    }
    assert [told[step] for step in range(1, len(seen) + 1)] == seen
    assert max(seen) > 0


async def test_a_checkpoint_has_no_tokens_in_flight_and_whoever_goes_on_has_a_balance(
    tmp_path: Path,
) -> None:
    """The groups are played again as a whole: what had come back of them is lost."""
    await ran(CONFIG, tmp_path / "a", Chance(1, most_tokens=12))
    state = read_state(tmp_path / "a" / "step-000004")
    assert state.tokens is not None
    assert state.tokens.is_balanced
    assert state.tokens.generating == 0
    assert state.tokens.dropped["group_lost"] == state.lost["group_lost"].tokens > 0
    begins = restored(CONFIG, Candidates((tmp_path / "a" / "step-000004",)))
    second = await ran(CONFIG, tmp_path / "b", Chance(2), begins=begins)
    tokens = second.loop.pool.books.tokens
    assert tokens.is_balanced
    assert tokens.generating == 0
    assert tokens.dropped["group_lost"] >= state.tokens.dropped["group_lost"]
