"""A trainer with a critic: warm-up, frozen attention, per-token advantages, checkpoints."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from lagoon.critic import adaptive_trace, generalized_advantages, is_trained, terminal_rewards
from lagoon.metrics import (
    CRITIC_LEARNING_RATE,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    LEARNING_RATE,
    VALUE_LOSS,
)
from tests.builders import grpo_config
from tests.workers.models_for_tests import build_model
from tests.workers.test_trainer import groups, longhand_logprobs, on_policy, samples
from workers.training import NonFiniteGradient, Trainer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def sao(folder: Path, *, warmup: int = 0, **given: Any) -> Trainer:
    method = {"name": "sao", "num_prompts": 6, "critic_warmup_steps": warmup}
    config = grpo_config(method=method | given.pop("method", {}), budget={"max_steps": 10_000})
    return Trainer(folder, config, **given)


def weights_of(part: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in part.named_parameters()}


def critic_of(ours: Trainer) -> Any:
    assert ours._critic_trainer is not None
    return ours._critic_trainer.critic


def test_the_critic_begins_as_the_policys_body_and_values_everything_at_0(
    model_folder: Path,
) -> None:
    ours = sao(model_folder)
    critic, body = weights_of(critic_of(ours)._model["body"]), ours._policy.model.base_model
    assert critic.keys() == dict(body.named_parameters()).keys()
    for name, parameter in body.named_parameters():
        assert torch.equal(critic[name], parameter)
    for values, sample in zip(critic_of(ours).values(samples()), samples(), strict=True):
        assert values.shape == (len(sample.trajectory.token_ids),)
        assert not values.any()


def test_check_6_the_warm_up_leaves_the_policy_and_attention_is_never_touched(
    model_folder: Path,
) -> None:
    ours, given = sao(model_folder, warmup=2), samples()
    policy, critic = ours.weights()[1], weights_of(critic_of(ours)._model)
    for _ in range(2):
        report = ours.step(given, 1e-3)
        assert ours.weights()[1] == policy
        assert not {GRAD_NORM.name, LEARNING_RATE.name} & report.sums.keys()
        assert report.sums[CRITIC_LEARNING_RATE.name] == (5e-3, 1.0)
        assert all(
            len(s.logprobs) == g.trajectory.num_actions
            for s, g in zip(report.scores, given, strict=True)
        )
    assert ours.version == 2
    after = weights_of(critic_of(ours)._model)
    moved = {name for name, before in critic.items() if not torch.equal(before, after[name])}
    assert moved
    assert all(is_trained(name) for name in moved)
    assert any("self_attn" in name for name in critic)
    ours.step(on_policy(ours, given), 1e-3)
    assert ours.weights()[1] != policy
    final = weights_of(critic_of(ours)._model)
    assert all(torch.equal(critic[n], final[n]) for n in critic if not is_trained(n))


def test_the_critic_learns_the_returns(model_folder: Path) -> None:
    ours, given = sao(model_folder, warmup=1000, method={"critic_updates": 4}), samples()
    losses, shares = [], []
    for _ in range(12):
        sums = ours.step(given, 2e-3).sums
        losses.append(sums[VALUE_LOSS.name][0])
        shares.append(sums[EXPLAINED_VARIANCE.name][0])
    assert losses[-1] < losses[0] / 2
    assert shares[0] == 0.0
    assert shares[-1] > 0.5
    earned = [sample.advantage for sample in given]
    assert losses[0] == pytest.approx(
        sum(e**2 * s.trajectory.num_actions for e, s in zip(earned, given, strict=True))
        / sum(s.trajectory.num_actions for s in given),
        rel=1e-5,
    )


def test_values_behind_a_shared_prompt_are_those_of_trajectories_alone(model_folder: Path) -> None:
    ours, given = sao(model_folder, warmup=1000), [*groups(), *samples(num=3, seed=5)]
    for _ in range(2):
        ours.step(given, 1e-2)
    shared = critic_of(ours).values(given)
    ours._policy.shares_prompts = False
    for one, other in zip(shared, critic_of(ours).values(given), strict=True):
        assert one.any()
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_check_4_the_on_policy_gradient_is_that_of_reinforce_with_generalized_advantages(
    model_folder: Path,
) -> None:
    ours = sao(model_folder, warmup=1)
    given = on_policy(ours, samples())
    ours.step(given, 1e-2)  # so that values are not 0
    values = critic_of(ours).values(given)
    assert ours._critic_trainer is not None
    valued = ours._critic_trainer.valued(given, ours.version)
    for batch in ours._micro_batches(valued.samples):
        ours._accumulate(batch)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    total = sum(sample.trajectory.num_actions for sample in given)
    value = torch.zeros(())
    for sample, own in zip(given, values, strict=True):
        assert isinstance(sample.advantage, float)
        mask = sample.trajectory.action_mask
        estimate = generalized_advantages(
            terminal_rewards(sample.advantage, mask),
            own,
            mask,
            trace=adaptive_trace(sum(mask), 1.5),
        )
        wanted = torch.tensor(estimate.advantages[np.flatnonzero(mask)], dtype=torch.float32)
        value = value + (wanted * torch.stack(longhand_logprobs(model, sample, 1.0))).sum()
    (-value / total).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in ours._policy.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-6, rtol=1e-3)


def test_whitened_advantages_have_mean_0_and_deviation_1(model_folder: Path) -> None:
    ours = sao(model_folder, method={"whiten": True})
    assert ours._critic_trainer is not None
    valued = ours._critic_trainer.valued(samples(), 0)
    known = np.concatenate(
        [
            np.array(sample.advantage)[np.flatnonzero(sample.trajectory.action_mask)]
            for sample in valued.samples
        ]
    )
    assert (known.mean(), known.std()) == (pytest.approx(0, abs=1e-9), pytest.approx(1))


def test_a_gradient_of_the_critic_that_is_not_finite_leaves_the_policy(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = sao(model_folder)
    given = on_policy(ours, samples())
    before, critic = ours.weights()[1], weights_of(critic_of(ours)._model)
    with monkeypatch.context() as patched:
        patched.setattr(critic_of(ours)._optimizer, "gradient_norm", lambda: math.inf)
        with pytest.raises(NonFiniteGradient, match=r"step 1 of the critic is inf: the step was"):
            ours.step(given, 1e-3)
    assert (ours.weights()[1], ours.version) == (before, 0)
    after = weights_of(critic_of(ours)._model)
    assert all(torch.equal(critic[name], after[name]) for name in critic)
    ours.step(given, 1e-3)


def test_values_that_are_not_numbers_are_refused(model_folder: Path) -> None:
    ours = sao(model_folder)
    before = ours.weights()[1]
    critic_of(ours)._model["head"].bias.data.fill_(math.nan)
    with pytest.raises(NonFiniteGradient, match="the step was refused"):
        ours.step(samples(), 1e-3)
    assert (ours.weights()[1], ours.version) == (before, 0)


def test_advantages_are_not_taken_for_rewards(model_folder: Path) -> None:
    given = [replace(sample, advantage=(1.0,)) for sample in samples()]
    with pytest.raises(TypeError, match="advantages already"):
        sao(model_folder).step(given, 1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_holds_the_critic_and_its_optimizer(
    model_folder: Path, tmp_path: Path, dtype: str
) -> None:
    config = grpo_config(
        model={"dtype": dtype}, method={"name": "sao", "num_prompts": 6, "critic_warmup_steps": 1}
    )
    through = Trainer(model_folder, config)
    for _ in range(2):
        through.step(samples(), 1e-3)
    through.save(tmp_path / "step-000002")
    resumed = Trainer(model_folder, config, tmp_path / "step-000002", 2)
    for ours in (through, resumed):
        ours.step(samples(seed=3), 1e-3)
    assert resumed.weights()[1] == through.weights()[1]
    one, other = (weights_of(critic_of(ours)._model) for ours in (through, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_state_of_another_critic_is_refused(model_folder: Path) -> None:
    critic = critic_of(sao(model_folder))
    state = {name: part for name, part in critic.state().items() if "head.bias" not in name}
    with pytest.raises(ValueError, match=r"'head\.bias' is in one of them"):
        critic.load(state)
