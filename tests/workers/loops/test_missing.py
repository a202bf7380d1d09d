"""What comes back without what training needs."""

import math
from pathlib import Path

from lagoon.books import Tally
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.loops.test_async import NUM_STEPS, overlapping
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.rollout import EpisodeRequest


async def test_a_reward_that_is_no_number_drops_its_trajectory(tmp_path: Path) -> None:
    def reward(request: EpisodeRequest, generator: FakeGenerator) -> float:
        _, position, member = request.trajectory_id.split("/")
        if request.split == "train" and (position == "1" or (position == "0" and member == "2")):
            return math.nan if member != "0" else 1.0
        return float(member == "0")

    config = overlapping({"name": "grpo", "group_size": 3})
    context, _ = loop_context(config, [FakeGenerator(reward)], tmp_path)
    trainer = FakeTrainer()
    loop = PolicyGradientLoop(context, trainer)
    assert await loop.run() == "finished"
    trained = [sample.trajectory for batch in trainer.batches for sample in batch]
    assert all(math.isfinite(each.reward) for each in trained)
    assert sum(each.trajectory_id.startswith("train/0/") for each in trained) == 2
    assert not any(each.trajectory_id.startswith("train/1/") for each in trained)
    assert loop.ledger.dropped == {"non_finite_reward": 1}
    # All three of one prompt, and one of another: that one goes on without it.
    assert loop.pool.books.dropped["non_finite_reward"] == Tally(4, successes=1, tokens=8)
    assert loop.pool.books.tokens.dropped == {"non_finite_reward": 8}
    assert len(trained) == NUM_STEPS * 2 * 3 - 1
