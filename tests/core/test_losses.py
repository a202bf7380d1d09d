import math

import pytest
import torch

from lagoon.config import RunConfig
from lagoon.losses import TokenBatch, clipped_surrogate, reference_divergence, token_weights
from lagoon.methods.grpo import GRPO
from tests.core.golden import cases, tensor

AGGREGATION = {"grpo": "sequence_mean", "bnpo": "token_mean", "dapo": "token_mean"}


def batch_of(inputs: dict, logprobs: torch.Tensor) -> TokenBatch:
    mask = tensor(inputs["mask"])
    lengths = [int(length) for length in mask.sum(1)]
    aggregation = AGGREGATION.get(inputs["loss_type"], "sequence_sum")
    constant = inputs.get("maxlen") or mask.shape[1]
    weights = token_weights(lengths, aggregation, constant)  # type: ignore[arg-type]
    return TokenBatch(
        logprobs=logprobs,
        behavior_logprobs=tensor(inputs["logp_old"]),
        advantages=tensor(inputs["advantages"])[:, None],
        weights=mask * torch.tensor(weights, dtype=torch.float64)[:, None],
        reference_logprobs=tensor(inputs["ref"]) if "ref" in inputs else None,
    )


def is_comparable(case: dict) -> bool:
    """The clipped ratio alone. TRL's dapo divides by a token count taken elsewhere, which differs
    when a row is empty."""
    inputs = case["inputs"]
    has_empty_row = any(sum(row) == 0 for row in inputs["mask"])
    others = {"delta", "bias", "level", "opsm", "is_ratio", "num_items"} & inputs.keys()
    return (
        inputs["loss_type"] in {*AGGREGATION, "dr_grpo"}
        and not others
        and not (has_empty_row and inputs["loss_type"] == "dapo")
    )


@pytest.mark.parametrize("case", cases("policy_loss_trl", where=is_comparable))
def test_loss_and_gradient_agree_with_trl(case: dict) -> None:
    inputs = case["inputs"]
    logprobs = tensor(inputs["logp"]).requires_grad_()
    batch = batch_of(inputs, logprobs)
    loss = clipped_surrogate(batch, clip_low=inputs["lo"], clip_high=inputs["hi"]).value
    if "beta" in inputs:
        loss = loss + inputs["beta"] * reference_divergence(batch).value
    loss.backward()
    assert loss.item() == pytest.approx(float(case["expected"]["loss"]), rel=1e-9)
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(logprobs.grad, expected, rtol=1e-9, atol=1e-12)


def on_policy_batch(seed: int = 0) -> tuple[TokenBatch, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    behavior = torch.randn(4, 6, generator=generator, dtype=torch.float64) - 2
    logprobs = behavior.clone().requires_grad_()
    advantages = torch.randn(4, 1, generator=generator, dtype=torch.float64)
    weights = torch.full((4, 6), 1 / 24, dtype=torch.float64)
    return TokenBatch(logprobs, behavior, advantages, weights), logprobs


def test_on_policy_gradient_is_the_weighted_advantage() -> None:
    batch, logprobs = on_policy_batch()
    clipped_surrogate(batch, clip_low=0.2, clip_high=0.2).value.backward()
    torch.testing.assert_close(logprobs.grad, (-batch.advantages * batch.weights))


def test_clip_takes_the_gradient_only_on_the_side_the_advantage_pushes_to() -> None:
    ratios = torch.tensor([[0.1, 1.0, 3.0, 10.0]], dtype=torch.float64)
    for sign, expected in ((1.0, [0.1, 1.0, 0.0, 0.0]), (-1.0, [0.0, 1.0, 3.0, 10.0])):
        logprobs = ratios.log().requires_grad_()
        batch = TokenBatch(
            logprobs,
            torch.zeros_like(ratios),
            torch.full_like(ratios, sign),
            torch.ones_like(ratios),
        )
        clipped_surrogate(batch, clip_low=0.2, clip_high=0.2).value.backward()
        assert logprobs.grad is not None
        assert (-logprobs.grad * sign)[0].tolist() == pytest.approx(expected)


def test_a_batch_split_into_parts_has_the_same_loss_and_gradient() -> None:
    batch, whole = on_policy_batch()
    clipped_surrogate(batch, clip_low=0.2, clip_high=0.2).value.backward()
    parts = batch.logprobs.detach().clone().requires_grad_()
    for row in range(4):
        part = TokenBatch(
            parts[row : row + 1],
            batch.behavior_logprobs[row : row + 1],
            batch.advantages[row : row + 1],
            batch.weights[row : row + 1],
        )
        clipped_surrogate(part, clip_low=0.2, clip_high=0.2).value.backward()
    torch.testing.assert_close(whole.grad, parts.grad)


def test_grpo_adds_the_divergence_from_the_reference_only_when_asked() -> None:
    batch, _ = on_policy_batch()
    shifted = TokenBatch(
        batch.logprobs,
        batch.behavior_logprobs,
        batch.advantages,
        batch.weights,
        batch.behavior_logprobs - 0.1,
    )
    plain, with_kl = GRPO(), GRPO(kl_coefficient=0.5)
    extra = with_kl.loss(shifted).value - plain.loss(shifted).value
    assert extra.item() == pytest.approx(0.5 * (math.exp(-0.1) + 0.1 - 1), rel=1e-6)
    assert not plain.needs_reference
    assert with_kl.needs_reference


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_token_weights_of_a_mean_sum_to_one(aggregation: str) -> None:
    lengths = [3, 1, 7]
    weights = token_weights(lengths, aggregation)  # type: ignore[arg-type]
    assert sum(w * n for w, n in zip(weights, lengths, strict=True)) == pytest.approx(1.0)


def test_a_sum_over_a_constant_needs_the_constant() -> None:
    with pytest.raises(ValueError, match="length_constant"):
        token_weights([1], "sequence_sum")
    config = {"environment": {"name": "sudoku4"}, "method": {"name": "grpo"}}
    config["method"] |= {"aggregation": "sequence_sum", "length_constant": "10"}
    assert RunConfig.model_validate(config).method.token_weights([5, 5]) == [0.05, 0.05]  # type: ignore[attr-defined]
