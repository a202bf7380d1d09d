"""The trainer on tokens of older policies: what the corrections make of them, and what is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lagoon.corrections import CORRECTIONS, interpolated_proximal
from lagoon.drift import drift, drift_points
from lagoon.losses import TokenBatch
from lagoon.metrics import CLIPPED, DRIFT_CLIPPED, DRIFT_MASKED, DRIFT_TOKENS, MASKED
from lagoon.trajectory import TrainingSample
from tests.builders import grpo_config
from tests.workers.models_for_tests import build_model
from tests.workers.test_trainer import groups, on_policy, samples
from workers.training import Trainer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def corrected(folder: Path, correction: str, *, version: int = 0, **bounds: Any) -> Trainer:
    method = {"name": "async_grpo", "num_prompts": 2, "group_size": 2, "correction": correction}
    return Trainer(folder, grpo_config(method=method | bounds), version=version)


def lagging(ours: Trainer, given: list[TrainingSample], spread: float) -> list[TrainingSample]:
    """Samples whose behavior policy differs from the present one by a random log-ratio a token."""
    random = np.random.default_rng(7)
    return [
        replace(
            sample,
            trajectory=replace(
                sample.trajectory,
                behavior_logprobs=tuple(
                    score - spread * float(random.standard_normal())
                    for score in sample.trajectory.behavior_logprobs
                ),
            ),
        )
        for sample in on_policy(ours, given)
    ]


def gradient(ours: Trainer, given: list[TrainingSample]) -> dict[str, torch.Tensor]:
    for batch in ours._micro_batches(given):
        ours._accumulate(batch)
    named = ours._policy.model.named_parameters()
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


@pytest.mark.parametrize("correction", list(CORRECTIONS))
def test_on_policy_every_correction_has_the_gradient_of_synchronous_grpo(
    model_folder: Path, correction: str
) -> None:
    sync = Trainer(model_folder, grpo_config())
    given = on_policy(sync, samples())
    wanted = gradient(sync, given)
    found = gradient(corrected(model_folder, correction, max_staleness=0), given)
    for name, expected in wanted.items():
        torch.testing.assert_close(found[name], expected, atol=1e-6, rtol=1e-4)


def test_clip_has_the_gradient_of_synchronous_grpo_on_stale_tokens_too(model_folder: Path) -> None:
    sync = Trainer(model_folder, grpo_config())
    given = lagging(sync, samples(), 0.3)
    wanted, found = gradient(sync, given), gradient(corrected(model_folder, "clip"), given)
    for name, expected in wanted.items():
        torch.testing.assert_close(found[name], expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("shares_prompts", [True, False])
def test_what_was_cut_comes_back_token_by_token(model_folder: Path, shares_prompts: bool) -> None:
    ours = corrected(model_folder, "dis", ratio_low=0.8, ratio_high=1.25)
    ours._policy.shares_prompts = shares_prompts
    given = lagging(ours, [*groups(), *samples(num=3, seed=5)], 0.3)
    before = ours.logprobs(given)
    report = ours.step(given, 1e-4)
    assert [list(found.logprobs) for found in report.scores] == before
    num_cut = 0
    for sample, found in zip(given, report.scores, strict=True):
        behavior = np.array(sample.trajectory.behavior_logprobs)
        sampled = np.array(sample.trajectory.action_mask, dtype=bool)
        ratio = np.exp(np.array(found.logprobs) - behavior[sampled])
        low, high = ratio <= 0.8, ratio >= 1.25
        assert list(found.below) == low.tolist()
        assert list(found.above) == high.tolist()
        assert list(found.masked) == (low | high).tolist()
        num_cut += int((low | high).sum())
    assert num_cut > 0
    total = sum(sample.trajectory.num_actions for sample in given)
    assert report.sums[MASKED.name] == report.sums[CLIPPED.name] == (num_cut, total)


def test_a_correction_for_whole_trajectories_knows_them_where_a_prompt_is_shared(
    model_folder: Path,
) -> None:
    """Half of the trajectories come from a policy far away: they alone get no gradient."""
    ours, alone = (corrected(model_folder, "geometric") for _ in range(2))
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
    report = ours.step(given, 1e-2)
    points = drift_points(drift([sample.trajectory for sample in given], report.scores, 0))
    high = {p.name: p.value for p in points if p.labels.get("side") == "high"}
    tokens = {p.labels["cause"]: p.value for p in points if p.name == DRIFT_TOKENS.name}
    assert high[DRIFT_MASKED.name] == high[DRIFT_CLIPPED.name] > 0
    assert tokens["lag"] == tokens["unknown"] == 0
    masked, counted = report.sums[MASKED.name]
    assert high[DRIFT_MASKED.name] == pytest.approx(masked / counted)
    assert tokens["mismatch"] == counted
    far = sum(sample.trajectory.num_actions for sample in given[1::2])
    assert (masked, counted) == (far, sum(s.trajectory.num_actions for s in given))
    alone.step(near[::2], 1e-2)
    theirs, _ = alone.weights()
    for name, array in ours.weights()[0].items():
        # A first step of Adam moves every weight by about the learning rate, 1e-2. Where the
        # gradient is nearly 0 its last bits decide, which processors compute differently.
        np.testing.assert_allclose(array, theirs[name], atol=5e-4, err_msg=name)


def test_the_decoupled_anchor_is_the_policy_of_one_update_ago(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = corrected(model_folder, "decoupled", version=3)
    seen: list[TokenBatch] = []
    surrogate = type(ours._method).surrogate
    monkeypatch.setattr(
        type(ours._method),
        "surrogate",
        lambda method, batch: (seen.append(batch), surrogate(method, batch))[1],
    )
    given = lagging(ours, samples(num=2), 0.3)
    (micro,) = ours._micro_batches(given)
    ours.step(given, 1e-4)
    (batch,) = seen
    wanted = interpolated_proximal(batch.logprobs, batch.behavior_logprobs, micro.versions, 3)
    assert batch.proximal_logprobs is not None
    torch.testing.assert_close(batch.proximal_logprobs, wanted)
    assert not torch.equal(batch.proximal_logprobs, batch.behavior_logprobs)


def test_drift_tells_the_numbers_of_the_engine_from_older_weights(model_folder: Path) -> None:
    ours = corrected(model_folder, "icepop", version=2)
    given = on_policy(ours, samples(num=4))
    versions = [2, 1, None, 0]
    for index, version in enumerate(versions):
        own = given[index].trajectory
        shift = 0.5 if version in (0, 1) else 1e-4
        given[index] = replace(
            given[index],
            trajectory=replace(
                own,
                versions=(version,) * len(own.versions),
                behavior_logprobs=tuple(b - shift for b in own.behavior_logprobs),
            ),
        )
    trajectories = [sample.trajectory for sample in given]
    found = drift(trajectories, ours.step(given, 1e-4).scores, 2)
    counts = [trajectory.num_actions for trajectory in trajectories]
    assert found.mismatch is not None
    assert found.lag is not None
    assert (found.mismatch.num_tokens, found.num_unknown) == (counts[0], counts[2])
    assert found.lag.num_tokens == counts[1] + counts[3]
    assert found.mismatch.logprob_abs == pytest.approx(1e-4, abs=1e-5)
    assert found.lag.logprob_abs == pytest.approx(0.5, abs=1e-4)
