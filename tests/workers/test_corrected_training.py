"""Corrections in the trainer, where micro-batches, shared prompts and the optimizer are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lagoon.metrics import DRIFT_CLIPPED, DRIFT_MASKED, DRIFT_TOKENS, MASKED
from tests.workers.models_for_tests import build_model
from tests.workers.test_trainer import groups, on_policy, trainer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


OFF_POLICY_CORRECTIONS = ("none", "clip", "tis", "icepop", "dis", "cispo", "decoupled", "geometric")


@pytest.mark.parametrize("correction", OFF_POLICY_CORRECTIONS)
def test_on_the_policys_own_samples_every_correction_steps_like_synchronous_grpo(
    model_folder: Path, correction: str
) -> None:
    sizes = {"num_prompts": 2, "group_size": 2}
    sync = trainer(model_folder)
    chosen = {"name": "async_grpo", "max_staleness": 0, "correction": correction}
    ours = trainer(model_folder, method=sizes | chosen)
    given = on_policy(sync, groups())
    for one in (sync, ours):
        one.step(given, 1e-2)
    theirs, _ = sync.weights()
    found, _ = ours.weights()
    for name, array in theirs.items():
        np.testing.assert_allclose(found[name], array, atol=2e-5, err_msg=name)


def test_a_correction_for_whole_trajectories_knows_them_where_a_prompt_is_shared(
    model_folder: Path,
) -> None:
    """Half of the trajectories come from a policy far away: they alone get no gradient."""
    method = {"name": "async_grpo", "num_prompts": 2, "group_size": 2, "correction": "geometric"}
    ours, alone = trainer(model_folder, method=method), trainer(model_folder, method=method)
    near = on_policy(ours, groups())
    given = [
        replace(
            sample,
            trajectory=replace(
                sample.trajectory,
                behavior_logprobs=tuple(b - 1.0 for b in sample.trajectory.behavior_logprobs),
            ),
        )
        if index % 2
        else sample
        for index, sample in enumerate(near)
    ]
    sums = ours.step(given, 1e-2)
    high = {p.name: p.value for p in ours.drift if p.labels.get("side") == "high"}
    tokens = {p.labels["cause"]: p.value for p in ours.drift if p.name == DRIFT_TOKENS.name}
    assert high[DRIFT_MASKED.name] == high[DRIFT_CLIPPED.name] > 0
    assert tokens["lag"] == tokens["unknown"] == 0
    masked, counted = sums[MASKED.name]
    assert high[DRIFT_MASKED.name] == pytest.approx(masked / counted)
    assert tokens["mismatch"] == counted
    far = sum(sample.trajectory.num_actions for sample in given[1::2])
    assert (masked, counted) == (far, sum(s.trajectory.num_actions for s in given))
    alone.step(near[::2], 1e-2)
    theirs, _ = alone.weights()
    for name, array in ours.weights()[0].items():
        np.testing.assert_allclose(array, theirs[name], atol=2e-5, err_msg=name)
