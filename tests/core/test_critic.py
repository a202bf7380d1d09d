import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon.corrections import CORRECTIONS, corrected_surrogate
from lagoon.critic import (
    Updates,
    adaptive_trace,
    explained_variance,
    generalized_advantages,
    is_trained,
    terminal_rewards,
    value_loss,
    whitened,
)
from lagoon.losses import TokenBatch
from lagoon.methods.sao import SAO
from tests.core.golden import cases, tensor

NUMBERS = st.floats(-10, 10)
TOKENS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 1)), min_size=1, max_size=12)
SHARE = st.floats(0, 1)


def longhand(rewards: list, values: list, discount: float, trace: float) -> list[float]:
    """Ordinary advantages of a sequence without observations, by their definition."""
    count = len(rewards)
    surprises = [
        rewards[t] + discount * (values[t + 1] if t + 1 < count else 0.0) - values[t]
        for t in range(count)
    ]
    return [
        sum((discount * trace) ** (later - t) * surprises[later] for later in range(t, count))
        for t in range(count)
    ]


# -- SAO's faithfulness checks (methods.md 3) ------------------------------------------------------


def dis_batch(ratios: list[float], advantages: list[float]) -> TokenBatch:
    behavior = torch.full((1, len(ratios)), -2.0, dtype=torch.float64)
    return TokenBatch(
        (behavior + tensor([ratios]).log()).requires_grad_(),
        behavior,
        tensor([advantages]),
        torch.full_like(behavior, 1 / len(ratios)),
    )


def dis_gradient(batch: TokenBatch) -> torch.Tensor:
    correction = CORRECTIONS["dis"]
    loss = corrected_surrogate(batch, correction, correction.band(low=0.7, high=6.0))
    (found,) = torch.autograd.grad(loss.value, batch.logprobs)
    return found[0]


@pytest.mark.parametrize("case", cases("sao_twinkle", "DIS weights from ratios"))
def test_check_1_the_bounds_are_strict_and_the_divisor_counts_every_token(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    assert (1 - inputs["eps_low"], 1 + inputs["eps_high"]) == (0.7, 6.0)
    # Away from the bounds by less than anything that could matter, but not by rounding.
    gradient = dis_gradient(dis_batch([0.7 - 1e-12, 0.8, 2.0, 6.0 + 1e-12], [1.0] * 4))
    assert (-4 * gradient).tolist() == pytest.approx(expected["weights"])
    assert -gradient.sum().item() == pytest.approx(expected["sum_over_n"]) == 0.7


def test_check_1_a_ratio_exactly_on_a_bound_is_out() -> None:
    correction = CORRECTIONS["dis"]
    bounds = dis_batch([0.5, 2.0], [1.0, 1.0])
    ratios = (bounds.logprobs - bounds.behavior_logprobs).exp()[0].tolist()
    loss = corrected_surrogate(bounds, correction, correction.band(low=ratios[0], high=ratios[1]))
    assert loss.importance is not None
    assert loss.importance.values[0].tolist() == [0.0, 0.0]


@given(st.lists(st.floats(0.01, 20), min_size=1, max_size=8))
@settings(max_examples=30)
def test_check_2_the_mask_does_not_see_the_sign_of_the_advantage(ratios: list[float]) -> None:
    for sign in (1.0, -1.0):
        gradient = dis_gradient(dis_batch(ratios, [sign] * len(ratios)))
        kept = [0.7 < ratio < 6.0 for ratio in ratios]
        near = [min(abs(ratio - 0.7), abs(ratio - 6.0)) < 1e-9 for ratio in ratios]
        for grad, is_kept, is_near in zip(gradient.tolist(), kept, near, strict=True):
            assert is_near or (grad != 0) == is_kept


def test_check_3_no_gradient_flows_through_the_weight() -> None:
    ratios, advantages = [0.8, 2.0, 5.0, 9.0], [1.0, -2.0, 0.5, 3.0]
    gradient = dis_gradient(dis_batch(ratios, advantages))
    weights = [0.8, 2.0, 5.0, 0.0]
    expected = [-w * a / 4 for w, a in zip(weights, advantages, strict=True)]
    assert gradient.tolist() == pytest.approx(expected)
    assert gradient[3].item() == 0.0


@given(TOKENS)
@settings(max_examples=30)
def test_check_4_on_policy_the_gradient_is_reinforce_with_these_advantages(tokens: list) -> None:
    rewards, values, mask = (list(part) for part in zip(*tokens, strict=True))
    advantages = generalized_advantages(rewards, values, mask).advantages
    gradient = dis_gradient(dis_batch([1.0] * len(mask), list(advantages)))
    assert gradient.tolist() == pytest.approx(list(-advantages / len(mask)))


@given(TOKENS, SHARE, SHARE)
@settings(max_examples=50)
def test_check_5_skipping_observations_is_deleting_them(
    tokens: list, discount: float, trace: float
) -> None:
    rewards, values, mask = zip(*tokens, strict=True)
    estimate = generalized_advantages(rewards, values, mask, discount=discount, trace=trace)
    kept = [index for index, is_action in enumerate(mask) if is_action]
    shorter = generalized_advantages(
        [rewards[index] for index in kept],
        [values[index] for index in kept],
        [1] * len(kept),
        discount=discount,
        trace=trace,
    )
    assert estimate.advantages[kept].tolist() == shorter.advantages.tolist()
    assert estimate.returns[kept].tolist() == shorter.returns.tolist()
    ordinary = longhand(
        [rewards[index] for index in kept], [values[index] for index in kept], discount, trace
    )
    assert shorter.advantages.tolist() == pytest.approx(ordinary, rel=1e-9, abs=1e-9)
    assert not estimate.advantages[np.asarray(mask) == 0].any()


class TinyModel(torch.nn.Module):
    """Modules named as in a Hugging Face model; one number each."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = torch.nn.Module()
        self.self_attn.q_norm = torch.nn.Linear(1, 1, dtype=torch.float64)
        self.post_attention_layernorm = torch.nn.Linear(1, 1, dtype=torch.float64)
        self.mlp = torch.nn.Linear(1, 1, dtype=torch.float64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        seen = self.self_attn.q_norm(inputs)  # type: ignore[operator]
        found: torch.Tensor = self.mlp(self.post_attention_layernorm(seen))
        return found


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def descend(loss: torch.Tensor, parameters: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for value, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            value -= 0.1 * grad


def test_check_6_warm_up_leaves_the_policy_and_the_critics_attention_as_they_were() -> None:
    torch.manual_seed(0)
    policy, critic = TinyModel(), TinyModel()
    trained = [value for name, value in critic.named_parameters() if is_trained(name)]
    first_policy, first_critic = state(policy), state(critic)
    inputs, returns = tensor([[1.0], [2.0]]), tensor([[1.0], [0.0]])
    for step in range(12):
        updates = SAO().updates_at(step)
        assert updates == Updates(critic=2, policy=0 if step < 10 else 1)
        for _ in range(updates.critic):
            descend(value_loss(critic(inputs), returns, torch.full_like(returns, 0.5)), trained)
        for _ in range(updates.policy):
            descend(policy(inputs).sum(), list(policy.parameters()))
        unchanged = all(torch.equal(value, first_policy[k]) for k, value in state(policy).items())
        assert unchanged == (step < 10)
    for name, value in state(critic).items():
        assert torch.equal(value, first_critic[name]) == name.startswith("self_attn")


# -- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("model.layers.0.self_attn.q_proj.weight", False),
        ("model.layers.0.self_attn.q_norm.weight", False),
        ("transformer.h.0.attn.c_attn.bias", False),
        ("encoder.layer.3.attention.output.LayerNorm.weight", False),
        ("model.layers.0.post_attention_layernorm.weight", True),
        ("model.layers.0.mlp.gate_proj.weight", True),
        ("model.embed_tokens.weight", True),
        ("value_head.weight", True),
    ],
)
def test_only_attention_is_left_as_it_was(name: str, trained: bool) -> None:
    assert is_trained(name) == trained


@given(st.integers(1, 100_000), st.floats(1.0, 4.0))
def test_longer_trajectories_have_a_longer_trace(length: int, scale: float) -> None:
    assert 0 <= adaptive_trace(length, scale) < adaptive_trace(length + 1, scale) < 1
    assert adaptive_trace(0, scale) == 0.0


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), NUMBERS)
@settings(max_examples=30)
def test_a_trace_of_one_returns_the_reward_to_every_token(mask: list[int], reward: float) -> None:
    values = [0.3 * position for position in range(len(mask))]
    estimate = generalized_advantages(terminal_rewards(reward, mask), values, mask)
    sampled = np.asarray(mask, dtype=bool)
    assert estimate.returns[sampled].tolist() == pytest.approx([reward] * int(sampled.sum()))
    assert not estimate.returns[~sampled].any()


def test_values_of_tokens_that_were_not_sampled_are_not_read() -> None:
    estimate = generalized_advantages([0, 9e9, 1.0], [0.5, math.nan, 0.5], [1, 0, 1])
    assert estimate.advantages.tolist() == [0.5, 0.0, 0.5]


def test_a_critic_that_knows_nothing_explains_nothing() -> None:
    assert explained_variance([0.5, 0.5], [0.0, 1.0]) == 0.0
    assert explained_variance([0.0, 1.0], [0.0, 1.0]) == 1.0
    assert explained_variance([5.0, -5.0], [0.0, 1.0]) < 0
    assert math.isnan(explained_variance([0.1, 0.2], [1.0, 1.0]))


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=5), min_size=1, max_size=4))
@settings(max_examples=30)
def test_whitened_advantages_have_mean_zero_and_deviation_one(rows: list[list[int]]) -> None:
    masks = [[position % 2 for position in range(len(row))] for row in rows]
    parts = np.concatenate(whitened([np.asarray(row, dtype=float) for row in rows], masks))
    sampled = np.concatenate(masks) == 1
    before = np.concatenate(rows)[sampled]
    assert not parts[~sampled].any()
    if len(set(before)) > 1:
        assert parts[sampled].mean() == pytest.approx(0, abs=1e-9)
        assert parts[sampled].std() == pytest.approx(1)
    else:
        assert not parts.any()


def test_advantages_that_do_not_differ_are_whitened_to_exactly_zero() -> None:
    (part,) = whitened([np.asarray([0.1, 0.1, 0.1])], [[1, 1, 1]])
    assert part.tolist() == [0.0, 0.0, 0.0]
    (part,) = whitened([np.asarray([0.0, 1e-214])], [[1, 1]])
    assert part.tolist() == [0.0, 0.0]


# -- vectors of other implementations -------------------------------------------------------------


@pytest.mark.parametrize("case", cases("gae_verl"))
def test_advantages_agree_with_verl(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    for row, mask in enumerate(inputs["mask"]):
        estimate = generalized_advantages(
            inputs["rewards"][row],
            inputs["values"][row],
            [int(m) for m in mask],
            discount=inputs["gamma"],
            trace=inputs["lam"],
        )
        sampled = np.flatnonzero(mask)
        for ours, theirs in (
            (estimate.advantages, expected["advantages_raw"][row]),
            (estimate.returns, expected["returns"][row]),
        ):
            wanted = np.asarray(theirs, dtype=np.float64)[sampled]
            assert ours[sampled].tolist() == pytest.approx(wanted.tolist(), rel=1e-9, abs=1e-12)


def has_no_observation(case: dict) -> bool:
    """Tokens that were not sampled stand behind all others, as padding does; SkyRL reads values
    of that as well."""
    rows = case["inputs"]["mask"]
    if case["function"].startswith("SkyRL"):
        return all(map(all, rows))
    return all(row == sorted(row, reverse=True) for row in rows)


@pytest.mark.parametrize(
    "case",
    cases(
        "gae_peers",
        "OpenRLHF get_advantages_and_returns",
        "SkyRL compute_gae_advantage_return",
        "OpenRLHF get_cumulative_returns",
        where=has_no_observation,
    ),
)
def test_without_observations_advantages_agree_with_openrlhf_and_skyrl(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    for row, mask in enumerate(inputs["mask"]):
        estimate = generalized_advantages(
            inputs["rewards"][row],
            inputs["values"][row] if "values" in inputs else [0.0] * len(mask),
            [int(m) for m in mask],
            discount=inputs["gamma"],
            trace=inputs.get("lam", 1.0),
        )
        sampled = np.flatnonzero(mask)
        for ours, theirs in (
            (estimate.returns, expected["returns"]),
            (estimate.advantages, expected.get("advantages")),
        ):
            if theirs is not None:
                wanted = np.asarray(theirs[row], dtype=np.float64)[sampled]
                assert ours[sampled].tolist() == pytest.approx(wanted.tolist(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", cases("gae_peers", "slime vanilla_gae and chunked_gae(chunk 4)"))
def test_without_observations_advantages_agree_with_slime(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    for row, rewards in enumerate(inputs["rewards"]):
        estimate = generalized_advantages(
            rewards,
            inputs["values"][row],
            [1] * len(rewards),
            discount=inputs["gamma"],
            trace=inputs["lam"],
        )
        assert estimate.advantages.tolist() == pytest.approx(expected["advantages"][row], rel=1e-9)
        assert estimate.returns.tolist() == pytest.approx(expected["returns"][row], rel=1e-9)


@pytest.mark.parametrize("case", cases("sao_twinkle", "skip-observation GAE"))
def test_advantages_agree_with_a_third_party_sao(case: dict) -> None:
    inputs, expected = case["inputs"], case["expected"]
    masks = [[int(m) for m in mask] for mask in inputs["mask"]]
    parts, returns = [], []
    for row, mask in enumerate(masks):
        trace = inputs["lam"]
        if trace is None:
            trace = adaptive_trace(sum(mask), inputs["alpha_len"])
        assert trace == pytest.approx(expected["lam_used"][row])
        estimate = generalized_advantages(
            inputs["rewards"][row],
            inputs["values"][row],
            mask,
            discount=inputs["gamma"],
            trace=trace,
            bootstrap=inputs["bootstrap_values"][row] if inputs["truncated"][row] else 0.0,
        )
        parts.append(estimate.advantages)
        returns.append(estimate.returns)
    if inputs["normalise"]:
        parts = whitened(parts, masks)
    for row, mask in enumerate(masks):
        sampled = np.flatnonzero(mask)
        for ours, theirs in (
            (parts[row], expected["advantages"][row]),
            (returns[row], expected["returns"][row]),
        ):
            wanted = np.asarray(theirs, dtype=np.float64)[sampled].tolist()
            assert ours[sampled].tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "case",
    cases("policy_loss_verl", "compute_value_loss", where=lambda c: c["inputs"]["clip"] >= 100),
)
def test_the_loss_of_the_critic_is_twice_that_of_verl_without_its_clip(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    values = tensor(inputs["values_new"]).requires_grad_()
    loss = value_loss(values, tensor(inputs["returns"]), mask / mask.sum()) / 2
    (gradient,) = torch.autograd.grad(loss, values)
    assert loss.item() == pytest.approx(case["expected"]["loss"], rel=1e-9)
    torch.testing.assert_close(gradient, tensor(case["expected"]["grad_values"]))
