"""Corrections beside those of other implementations: every vector of theirs on a correction that we
have too. What is left out, and why, is in ``test_vectors.py``."""

import pytest
import torch

from lagoon.corrections import (
    CORRECTIONS,
    CorrectionName,
    corrected_surrogate,
    interpolated_proximal,
)
from lagoon.metrics import MASKED
from tests.core.golden import cases, padded, tensor
from tests.core.test_corrections import batch_of, corrected, gradient


def is_dual_clip_idle(
    logprobs: list, others: list, advantages: list, mask: list, bound: float | None
) -> bool:
    """Whether no token has a negative advantage and a ratio above ``bound``: there a dual clip
    would bound the loss, which no correction of ours does."""
    ratio = (tensor(logprobs) - tensor(others)).exp()
    is_bounded = (tensor(advantages) < 0) & (ratio > (bound or float("inf"))) & (tensor(mask) > 0)
    return not bool(is_bounded.any())


def idle(case: dict) -> bool:
    """That of a case's ratio to the policy of one update ago, or else to the behavior policy."""
    inputs = case["inputs"]
    others = next(inputs[n] for n in ("logp_prox", "logp_old", "logp_rollout") if n in inputs)
    mask = inputs.get("mask") or torch.ones_like(tensor(others)).tolist()
    bound = inputs.get("c_clip") or inputs.get("dual_clip_c")
    return is_dual_clip_idle(inputs["logp"], others, inputs["advantages"], mask, bound)


@pytest.mark.parametrize(
    "case",
    cases("importance_slime", "vanilla_tis_function", "icepop_function"),
)
def test_truncation_and_icepop_agree_with_slime(case: dict) -> None:
    inputs = case["inputs"]
    (train, mask), (rollout, _) = padded(inputs["logp_train"]), padded(inputs["logp_rollout"])
    name: CorrectionName = "icepop" if case["function"] == "icepop_function" else "cispo"
    loss = corrected(
        name, batch_of(train, rollout), low=inputs["clip_low"], high=inputs["clip_high"]
    )
    assert loss.importance is not None
    where = mask.bool()
    assert loss.importance.values[where].tolist() == pytest.approx(
        case["expected"]["weights"], rel=1e-9, abs=1e-12
    )
    cut = loss.importance.is_cut[where].to(torch.float64)
    assert cut.tolist() == case["expected"]["clipped"]


@pytest.mark.parametrize("case", cases("importance_slime", "compute_policy_loss", where=idle))
def test_the_clipped_ratio_agrees_with_slime(case: dict) -> None:
    inputs = case["inputs"]
    batch = batch_of(
        tensor([inputs["logp"]]).requires_grad_(),
        tensor([inputs["logp_old"]]),
        tensor([inputs["advantages"]]),
    )
    loss = corrected("clip", batch, low=1 - inputs["clip_low"], high=1 + inputs["clip_high"])
    expected = case["expected"]
    assert gradient(loss, batch)[0].tolist() == pytest.approx(expected["grad_of_sum"], rel=1e-9)


@pytest.mark.parametrize("case", cases("importance_slime", "compute_cispo_loss"))
def test_cispo_agrees_with_slime(case: dict) -> None:
    inputs = case["inputs"]
    batch = batch_of(
        tensor([inputs["logp"]]).requires_grad_(),
        tensor([inputs["logp_old"]]),
        tensor([inputs["advantages"]]),
    )
    loss = corrected("cispo", batch, low=1 - inputs["clip_low"], high=1 + inputs["clip_high"])
    expected = case["expected"]
    assert gradient(loss, batch)[0].tolist() == pytest.approx(expected["grad_of_sum"], rel=1e-9)


def is_of_tokens(case: dict) -> bool:
    """Each token by its own ratio, as ours are."""
    return case["inputs"]["level"] == "token" and not case["inputs"]["batch_normalise"]


@pytest.mark.parametrize(
    "case",
    cases("rollout_correction_verl", "compute_rollout_correction_weights", where=is_of_tokens),
)
def test_truncation_and_icepop_agree_with_verl(case: dict) -> None:
    inputs = case["inputs"]
    threshold, mask = inputs["threshold"], tensor(inputs["mask"])
    batch = batch_of(tensor(inputs["logp_train"]), tensor(inputs["logp_rollout"]), mask=mask)
    if isinstance(threshold, str):
        low, high = (float(bound) for bound in threshold.split("_"))
        loss = corrected("icepop", batch, low=low, high=high)
    else:
        loss = corrected("tis", batch, high=threshold)
    assert loss.importance is not None
    expected = tensor(case["expected"]["weights"])
    torch.testing.assert_close(loss.importance.values * mask, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", cases("importance_skyrl", "rollout_is_policy_loss"))
def test_the_strict_mask_agrees_with_skyrl(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_rollout"]),
        tensor(inputs["advantages"]),
        mask=mask,
    )
    loss = corrected("dis", batch, low=1 - inputs["eps_low"], high=1 + inputs["eps_high"])
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)
    masked, count = loss.metrics[MASKED]
    assert masked / count == pytest.approx(case["expected"]["masked_fraction"])


def is_bypass_of_ours(case: dict) -> bool:
    """Plain gradients with the weight of each token, or the clipped ratio without weights."""
    inputs = case["inputs"]
    if inputs["loss_type"] == "ppo_clip":
        return idle(case)
    return inputs["is_level"] in ("token", None)


@pytest.mark.parametrize(
    "case", cases("rollout_correction_verl", "policy_loss:bypass_mode", where=is_bypass_of_ours)
)
def test_losses_of_two_policies_agree_with_verl(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    threshold, bounds = inputs["is_threshold"], dict[str, float]()
    name: CorrectionName = "none"
    if inputs["loss_type"] == "ppo_clip":
        name, bounds = "clip", {"low": 1 - inputs["clip_low"], "high": 1 + inputs["clip_high"]}
    elif isinstance(threshold, str) and inputs["is_level"]:
        low, high = (float(bound) for bound in threshold.split("_"))
        name, bounds = "icepop", {"low": low, "high": high}
    elif inputs["is_level"]:
        name, bounds = "tis", {"high": threshold}
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_rollout"]),
        tensor(inputs["advantages"]),
        mask=mask / mask.sum(),
    )
    expected = tensor(case["expected"]["grad_logp"])
    found = gradient(corrected(name, batch, **bounds), batch)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case",
    cases(
        "rollout_correction_verl",
        "compute_rollout_rejection_mask",
        where=lambda case: case["inputs"]["criterion"] in ("token_k1", "seq_mean_k1"),
    ),
)
def test_masks_of_tokens_and_of_trajectories_agree_with_verl(case: dict) -> None:
    """The peer's bounds are of behavior over present policy."""
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    lowest, highest = (float(bound) for bound in inputs["threshold"].split("_"))
    rows = torch.arange(len(mask))[:, None].expand(mask.shape)
    batch = batch_of(
        tensor(inputs["logp_train"]), tensor(inputs["logp_rollout"]), mask=mask, trajectories=rows
    )
    name: CorrectionName = "icepop" if inputs["criterion"] == "token_k1" else "geometric"
    importance = corrected(name, batch, low=1 / highest, high=1 / lowest).importance
    assert importance is not None
    kept = (~importance.is_masked).to(torch.float64) * mask
    assert torch.equal(kept, tensor(case["expected"]["mask"]) * mask)


@pytest.mark.parametrize(
    "case",
    cases(
        "importance_skyrl",
        "compute_off_policy_correction + ppo_policy_loss",
        where=lambda case: (
            case["inputs"]["correction"].get("tis_ratio_type") == "token"
            and "sequence_mask_metric" not in case["inputs"]["correction"]
        ),
    ),
)
def test_a_truncated_weight_over_a_clipped_one_agrees_with_skyrl(case: dict) -> None:
    inputs = case["inputs"]
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_rollout"]),
        tensor(inputs["advantages"]),
        mask=tensor(inputs["mask"]),
        proximal=tensor(inputs["logp_old"]),
    )
    loss = corrected(
        "decoupled",
        batch,
        low=1 - inputs["clip_low"],
        high=1 + inputs["clip_high"],
        cap=inputs["correction"]["token_tis_ratio_clip_high"],
    )
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "case",
    cases(
        "importance_skyrl",
        "compute_off_policy_correction + ppo_policy_loss",
        where=lambda case: (
            case["inputs"]["correction"].get("sequence_mask_metric") == "geometric"
            and "tis_ratio_type" not in case["inputs"]["correction"]
        ),
    ),
)
def test_the_geometric_mask_agrees_with_skyrl(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    rows = torch.arange(len(mask))[:, None].expand(mask.shape)
    batch = batch_of(
        tensor(inputs["logp_old"]), tensor(inputs["logp_rollout"]), mask=mask, trajectories=rows
    )
    bounds = inputs["correction"]
    loss = corrected("geometric", batch, low=bounds["geo_mask_low"], high=bounds["geo_mask_high"])
    assert loss.importance is not None
    kept = (~loss.importance.is_masked).to(torch.float64) * mask
    assert torch.equal(kept, tensor(case["expected"]["mask"]) * mask)


@pytest.mark.parametrize(
    "case", cases("sao_twinkle", "DIS loss", where=lambda case: case["inputs"]["detach_weight"])
)
def test_the_strict_mask_agrees_with_a_third_party_sao(case: dict) -> None:
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_rollout"]),
        tensor(inputs["advantages"]),
        mask=mask / mask.sum().clamp(min=1),
    )
    loss = corrected("dis", batch, low=1 - inputs["eps_low"], high=1 + inputs["eps_high"])
    expected = case["expected"]
    torch.testing.assert_close(
        gradient(loss, batch), tensor(expected["grad_logp"]), rtol=1e-9, atol=1e-12
    )
    assert loss.importance is not None
    torch.testing.assert_close(
        loss.importance.values * mask, tensor(expected["weights"]) * mask, rtol=1e-9, atol=1e-12
    )


def is_decoupled(case: dict) -> bool:
    """The behavior weight of each token alone, at most a cap; and the ratio of each token."""
    inputs = case["inputs"]
    rule = inputs["rejection"]
    is_capped = not rule or (
        (rule["level"], rule["action"], rule["metric"]) == ("token", "clamp", "ratio")
        and rule["lower"] is None
    )
    return is_capped and idle(case) and inputs.get("importance_level") != "sequence"


@pytest.mark.parametrize(
    "case", cases("decoupled_ppo_areal", "ppo_actor_loss_fn", where=is_decoupled)
)
def test_decoupled_ppo_agrees_with_areal(case: dict) -> None:
    """Without a rule for the behavior weights the peer has none: ordinary PPO, which ours is when
    the proximal policy sampled."""
    inputs, mask = case["inputs"], tensor(case["inputs"]["mask"])
    rule, clip = inputs["rejection"], inputs["eps_clip"]
    batch = batch_of(
        tensor(inputs["logp"]).requires_grad_(),
        tensor(inputs["logp_behave"] if rule else inputs["logp_prox"]),
        tensor(inputs["advantages"]),
        mask=mask / mask.sum(),
        proximal=tensor(inputs["logp_prox"]),
    )
    cap = rule["upper"] if rule else None
    high = 1 + (inputs["eps_clip_higher"] or clip)
    band = CORRECTIONS["decoupled"].band(low=1 - clip, high=high, cap=cap)
    loss = corrected_surrogate(batch, CORRECTIONS["decoupled"], band)
    expected = tensor(case["expected"]["grad_logp"])
    torch.testing.assert_close(gradient(loss, batch), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", cases("decoupled_ppo_areal", "compute_prox_logp_approximations"))
def test_the_interpolated_proximal_policy_agrees_with_areal(case: dict) -> None:
    inputs = case["inputs"]
    ours = interpolated_proximal(
        tensor(inputs["logp"]),
        tensor(inputs["logp_behave"]),
        torch.tensor(inputs["versions"]),
        inputs["current_version"],
    )
    expected = tensor(case["expected"]["loglinear"])
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
