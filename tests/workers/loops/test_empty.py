"""Prompts as long as an episode may be: nothing is sampled, and nothing of it is trained on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.trajectory import Trajectory
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from tests.workers.loops.invariants import (
    NUM_STEPS,
    ONE_STEP_OFF,
    PACED,
    SINGLE,
    UNFILTERED,
    overlapping,
)
from workers.failures import RunFailed
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.pool import MAX_IN_VAIN
from workers.rollout import EpisodeFailure, EpisodeRequest

METHODS = [{"name": "grpo"}, ONE_STEP_OFF, UNFILTERED, PACED, SINGLE]


class Full(FakeGenerator):
    """Episodes that have no room for a token, by the position of their prompt."""

    def __init__(self, is_full: Callable[[int], bool]) -> None:
        super().__init__(lambda request, _: float(request.trajectory_id.endswith("0")))
        self._is_full = is_full

    def _play(self, request: EpisodeRequest) -> Trajectory | EpisodeFailure:
        played = super()._play(request)
        assert isinstance(played, Trajectory)
        split, position, _ = request.trajectory_id.split("/")
        if split != "train" or not self._is_full(int(position)):
            return played
        return replace(played, action_mask=(0, 0, 0), versions=(None,) * 3, truncated=True)


def loop_of(
    method: dict[str, Any], is_full: Callable[[int], bool], folder: Path
) -> tuple[PolicyGradientLoop, FakeTrainer, ListSink]:
    context, sink = loop_context(overlapping(method), [Full(is_full)], folder)
    trainer = FakeTrainer()
    return PolicyGradientLoop(context, trainer), trainer, sink


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each["name"])
async def test_an_episode_without_a_token_is_dropped_for_that_by_every_method(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    loop, trainer, sink = loop_of(method, lambda position: position % 3 == 0, tmp_path)
    assert await loop.run() == "finished"
    assert len(trainer.batches) == NUM_STEPS
    trained = [sample.trajectory for batch in trainer.batches for sample in batch]
    assert all(each.num_actions for each in trained)
    assert loop.ledger.dropped["no_tokens"] > 0
    assert "versions_missing" not in loop.ledger.dropped
    told = {point.labels.get("reason") for _, point in sink.points(m.LEDGER_DROPPED)}
    assert "no_tokens" in told


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each["name"])
async def test_a_run_whose_prompts_are_all_too_long_ends_and_says_why(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    loop, trainer, _ = loop_of(method, lambda position: True, tmp_path)
    words = f"{MAX_IN_VAIN} prompts in a row .* no room for a token in model.max_length_tokens"
    with pytest.raises(RunFailed, match=words) as caught:
        await loop.run()
    assert not caught.value.is_transient
    assert trainer.batches == []


async def test_a_run_goes_on_as_long_as_some_prompt_gives_something_to_train_on(
    tmp_path: Path,
) -> None:
    loop, trainer, _ = loop_of(
        UNFILTERED, lambda position: bool((position + 1) % MAX_IN_VAIN), tmp_path
    )
    assert await loop.run() == "finished"
    assert len(trainer.batches) == NUM_STEPS
