"""Without lag asynchronous training is synchronous GRPO, down to the bits of the weights."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lagoon import metrics as m
from lagoon.config import RunConfig
from lagoon.corrections import CORRECTIONS
from lagoon.trajectory import TrainingSample, Trajectory
from tests.builders import grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from tests.workers.models_for_tests import VOCABULARY, build_model
from tests.workers.test_trainer import on_policy
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.payload import Weights
from workers.rollout import EpisodeFailure, EpisodeRequest
from workers.step_report import StepReport
from workers.training import Trainer

NUM_STEPS = 2


class Recorded(FakeGenerator):
    """It plays back a trace: tokens, turns and rewards that follow from an episode's name."""

    def _play(self, request: EpisodeRequest) -> Trajectory | EpisodeFailure:
        chosen = random.Random(request.trajectory_id)
        mask = [0, 0, 0, *[int(place % 5 < 3) for place in range(chosen.randint(4, 20))]]
        played = super()._play(request)
        assert isinstance(played, Trajectory)
        return replace(
            played,
            token_ids=tuple(chosen.randrange(3, len(VOCABULARY)) for _ in mask),
            action_mask=tuple(mask),
            behavior_logprobs=(-1.0,) * len(mask),
            versions=tuple(self.version if action else None for action in mask),
        )


class Real(FakeTrainer):
    """The real trainer takes the steps, on tokens that its own weights are taken to have sampled;
    what proves weights is left to the fakes."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        super().__init__()
        self.real = Trainer(folder, config)

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        await super().step(samples, learning_rate)
        return self.real.step(on_policy(self.real, list(samples)), learning_rate)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def trained(method: dict[str, Any], model_folder: Path, folder: Path) -> tuple[Weights, Any]:
    """The weights after a run, and what it says of lag."""
    config = grpo_config(
        method={"num_prompts": 2, "group_size": 3} | method,
        budget={"max_steps": NUM_STEPS},
        trainer={"learning_rate": 1e-2},
    )
    trainer = Real(model_folder, config)
    generators = [Recorded(lambda r, _: float(r.trajectory_id.endswith("0"))) for _ in "ab"]
    context, sink = loop_context(config, generators, folder)
    asyncio.run(PolicyGradientLoop(context, trainer).run())
    return trainer.real.weights()[0], sink.histograms(m.TOTAL_HISTOGRAM)


@cache
def synchronous(model_folder: Path, folder: Path) -> Weights:
    return trained({"name": "grpo"}, model_folder, folder)[0]


@pytest.mark.parametrize("correction", list(CORRECTIONS))
def test_with_a_bound_of_0_every_correction_trains_the_weights_of_synchronous_grpo(
    model_folder: Path, tmp_path: Path, correction: str
) -> None:
    wanted = synchronous(model_folder, model_folder.parent / "synchronous")
    method = {"name": "async_grpo", "max_staleness": 0, "correction": correction}
    found, lags = trained(method, model_folder, tmp_path)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert [set(lags[step]) for step in range(1, NUM_STEPS + 1)] == [{0}, {0}]


def test_the_weights_of_synchronous_grpo_have_moved(model_folder: Path) -> None:
    wanted = synchronous(model_folder, model_folder.parent / "synchronous")
    before = Trainer(model_folder, grpo_config()).weights()[0]
    assert any(not np.array_equal(before[name], array) for name, array in wanted.items())
