"""Losses and divisors beside those of other implementations."""

import pytest
import torch

from lagoon.losses import TokenBatch, clipped_surrogate, reference_divergence, token_weights
from tests.core.golden import cases, tensor
from tests.core.test_correction_vectors import idle
from tests.core.test_corrections import batch_of, corrected, gradient

PRECISION = {"rtol": 2e-8, "atol": 1e-12}
"""verl adds 1e-8 to the number of tokens."""


def of_rows(mask: torch.Tensor, aggregation: str) -> torch.Tensor:
    """The divisors of verl, which leaves rows without tokens out."""
    kind, constant = {
        "token-mean": ("token_mean", None),
        "seq-mean-token-mean": ("sequence_mean", None),
        "seq-mean-token-sum": ("sequence_sum", 1),
        "seq-mean-token-sum-norm": ("sequence_sum", mask.shape[1]),
    }.get(aggregation, ("", None))
    if not kind:
        return mask
    has_tokens = mask.sum(1) > 0
    lengths = [int(length) for length in mask.sum(1)[has_tokens]]
    divisors = torch.zeros(len(mask), dtype=torch.float64)
    divisors[has_tokens] = tensor(token_weights(lengths, kind, constant))  # type: ignore[arg-type]
    return mask * divisors[:, None]


def weighed_batch(case: dict, weights: torch.Tensor, ratio: list | None) -> TokenBatch:
    """A case that is given the weight of each token over the policy of one update ago: a behavior
    policy that such a weight comes from."""
    inputs = case["inputs"]
    old, advantages = tensor(inputs["logp_old"]), tensor(inputs["advantages"])
    behavior = old if ratio is None else old - tensor(ratio).log()
    return batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        behavior,
        advantages if advantages.dim() > 1 else advantages[:, None],
        mask=weights,
        proximal=old,
    )


@pytest.mark.parametrize("case", cases("policy_loss_verl", "policy_loss:vanilla", where=idle))
def test_clipped_losses_agree_with_verl_whatever_their_divisor(case: dict) -> None:
    inputs = case["inputs"]
    batch = weighed_batch(
        case, of_rows(tensor(inputs["mask"]), inputs["agg"]), inputs["is_weights"]
    )
    low, high = 1 - inputs["clip_low"], 1 + inputs["clip_high"]
    loss = corrected("decoupled", batch, low=low, high=high, cap=1e9)
    expected = case["expected"]
    torch.testing.assert_close(gradient(loss, batch), tensor(expected["grad_logp"]), **PRECISION)
    if inputs["is_weights"] is None:
        plain = clipped_surrogate(batch, clip_low=1 - low, clip_high=high - 1).value
        assert plain.item() == pytest.approx(expected["loss"], rel=2e-8)


@pytest.mark.parametrize("case", cases("policy_loss_verl", "policy_loss:cispo"))
def test_cispo_agrees_with_verl(case: dict) -> None:
    inputs = case["inputs"]
    batch = weighed_batch(case, of_rows(tensor(inputs["mask"]), inputs["agg"]), None)
    loss = corrected("cispo", batch, low=1 - inputs["clip_low"], high=1 + inputs["clip_high"])
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, **PRECISION)


@pytest.mark.parametrize(
    "case",
    [
        *cases("importance_skyrl", "cispo (anchor old)"),
        *cases(
            "decoupled_ppo_areal",
            "cispo_loss_fn",
            where=lambda case: case["inputs"]["rejection"] is None,
        ),
    ],
)
def test_cispo_agrees_with_skyrl_and_areal(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    is_areal = "eps_clip" in inputs
    low = inputs["eps_clip" if is_areal else "clip_low"]
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_prox" if is_areal else "logp_old"]),
        tensor(inputs["advantages"]),
        mask=mask / mask.sum() if is_areal else mask,
    )
    high = inputs["eps_clip_higher" if is_areal else "clip_high"]
    loss = corrected("cispo", batch, low=1 - low, high=1 + high)
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case", cases("policy_loss_trl", where=lambda case: case["inputs"]["loss_type"] == "cispo")
)
def test_cispo_agrees_with_trl(case: dict) -> None:
    """Its upper bound is the cap itself, and it has no lower one."""
    inputs = case["inputs"]
    batch = weighed_batch(case, of_rows(tensor(inputs["mask"]), "token-mean"), None)
    loss = corrected("cispo", batch, low=0.0, high=inputs["hi"])
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case", cases("policy_loss_trl", where=lambda case: "is_ratio" in case["inputs"])
)
def test_a_given_weight_over_a_clipped_one_agrees_with_trl(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    lengths = [int(length) for length in mask.sum(1)]
    divisors = tensor(token_weights(lengths, "sequence_mean"))[:, None]
    batch = weighed_batch(case, mask * divisors, inputs["is_ratio"])
    loss = corrected("decoupled", batch, low=1 - inputs["lo"], high=1 + inputs["hi"], cap=1e9)
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)


REDUCTIONS = {
    "token_mean": "token_mean",
    "sequence_mean": "sequence_mean",
    "seq_mean_token_sum_norm": "sequence_sum",
}


@pytest.mark.parametrize(
    "case",
    cases(
        "importance_skyrl",
        "apply_loss_reduction_to_advantages_minibatch",
        where=lambda case: case["inputs"]["reduction"] in REDUCTIONS,
    ),
)
def test_divisors_agree_with_skyrl(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    lengths = [int(length) for length in mask.sum(1)]
    kind = REDUCTIONS[inputs["reduction"]]
    weights = token_weights(lengths, kind, inputs["max_seq_len"])  # type: ignore[arg-type]
    ours = tensor(inputs["advantages"]) * tensor(weights)[:, None] * mask
    theirs = tensor(case["expected"]["scaled_advantages"]) * mask
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        *cases(
            "importance_slime",
            "compute_approx_kl",
            where=lambda case: case["inputs"]["kind"] in ("k3", "low_var_kl"),
        ),
        *cases("policy_loss_verl", "kl_penalty", where=lambda c: c["inputs"]["kind"] == "k3"),
    ],
)
def test_the_divergence_from_the_reference_agrees_with_slime_and_verl(case: dict) -> None:
    inputs = case["inputs"]
    logprobs = torch.atleast_2d(tensor(inputs["logp"])).requires_grad_()
    reference = torch.atleast_2d(tensor(inputs.get("logp_base") or inputs["logp_ref"]))
    ones = torch.ones_like(reference)
    loss = reference_divergence(TokenBatch(logprobs, reference, ones, ones, reference)).value
    assert loss.item() == pytest.approx(tensor(case["expected"]["kl"]).sum().item(), rel=1e-9)
    if "grad_of_sum" in case["expected"]:
        (found,) = torch.autograd.grad(loss, logprobs)
        torch.testing.assert_close(found, tensor(case["expected"]["grad_of_sum"]))
