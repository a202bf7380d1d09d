"""Every vector of another implementation on corrections, advantages and staleness is compared with
ours, or left out for a reason that is written here."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.core import (
    test_advantages,
    test_correction_vectors,
    test_critic,
    test_drift,
    test_loss_vectors,
    test_losses,
    test_staleness,
)
from tests.core.golden import COMPARED, every_case
from tests.core.test_correction_vectors import idle

COMPARING = (
    test_advantages,
    test_correction_vectors,
    test_critic,
    test_drift,
    test_loss_vectors,
    test_losses,
    test_staleness,
)
"""They say what they compare when they are imported."""

Reason = tuple[str, Callable[[dict[str, Any], str], bool]]
"""Why a case is left out, and of which cases that holds: of inputs, and the note to them."""


def _has(name: str, *values: Any) -> Callable[[dict[str, Any], str], bool]:
    return lambda inputs, _: inputs.get(name) in values


def _any(inputs: dict[str, Any], note: str) -> bool:
    return True


def _dual_clip(inputs: dict[str, Any], note: str) -> bool:
    return not idle({"inputs": inputs})


def _has_observations(inputs: dict[str, Any], note: str) -> bool:
    return note.startswith("obs")


LEAVE_ONE_OUT = "no method of ours leaves a trajectory out of its own baseline"
DUAL_CLIP = "no correction of ours bounds the loss of a negative advantage"
OTHER_LOSS = "a loss that no method of ours has"
OTHER_RULE = "a rule for trajectories or tokens that no correction of ours has"
BATCH = "no method of ours divides a group's advantages by a deviation of the whole batch"
THROUGH_A_MEAN = "gradients that flow through a mean over the sequence"
NOT_SKIPPED = "the peer does not skip observations, which ours has to"

LEFT_OUT: dict[str, dict[str, list[Reason]]] = {
    "decoupled_ppo_areal": {
        "ppo_actor_loss_fn": [
            (DUAL_CLIP, _dual_clip),
            (THROUGH_A_MEAN, _has("importance_level", "sequence")),
            (
                "ours caps the behavior weight of each token, and has no other rule for it",
                lambda inputs, _: (
                    bool(inputs["rejection"])
                    and (
                        inputs["rejection"]["action"] == "mask"
                        or inputs["rejection"]["level"] == "sequence"
                        or inputs["rejection"]["lower"] is not None
                    )
                ),
            ),
        ],
        "cispo_loss_fn": [
            ("no CISPO of ours has a behavior weight as well", lambda i, _: bool(i["rejection"]))
        ],
        "_apply_m2po_masking": [(OTHER_RULE, _any)],
    },
    "gae_peers": {
        "OpenRLHF get_advantages_and_returns": [(NOT_SKIPPED, _has_observations)],
        "OpenRLHF get_cumulative_returns": [(NOT_SKIPPED, _has_observations)],
        "SkyRL compute_gae_advantage_return": [
            (NOT_SKIPPED, _has_observations),
            ("the peer bootstraps from values of padding", lambda _, note: note == "pad"),
        ],
    },
    "grpo_advantages_nemo": {
        "calculate_baseline_and_std_per_prompt": [(LEAVE_ONE_OUT, _has("leave_one_out", True))]
    },
    "grpo_advantages_peers": {
        "AReaL Normalization": [
            (LEAVE_ONE_OUT, _has("leave_one_out", True)),
            (BATCH, lambda i, _: (i["mean_level"], i["std_level"]) == ("group", "batch")),
        ],
        "OpenRLHF rloo": [(LEAVE_ONE_OUT, _any)],
        "twinkle GRPOAdvantage": [
            (BATCH, _has("scale", "batch")),
            (
                "a group of one has no spread, and no advantage",
                lambda i, _: i["group_size"] == 1 and i["scale"] != "batch",
            ),
        ],
    },
    "grpo_advantages_trl": {
        "advantage block": [
            (BATCH, _has("scale", "batch")),
            ("rewards are summed before anything else", _has("aggregation", "normalize_then_sum")),
        ]
    },
    "grpo_advantages_verl": {
        "compute_rloo_outcome_advantage": [(LEAVE_ONE_OUT, _any)],
        "compute_reinforce_plus_plus_outcome_advantage": [("another method", _any)],
        "compute_grpo_outcome_advantage": [
            ("a group of one has no spread, and no advantage", lambda _, note: "of one" in note)
        ],
        "compute_grpo_vectorized_outcome_advantage": [
            ("a group of one has no spread, and no advantage", lambda _, note: note == "single"),
            (
                "the peer's float32 leaves nothing of rewards that are so close",
                lambda _, note: note in ("allequal", "constplus"),
            ),
        ],
    },
    "importance_skyrl": {
        "compute_off_policy_correction + ppo_policy_loss": [
            (
                OTHER_RULE,
                lambda i, _: (
                    i["correction"].get("tis_ratio_type") == "sequence"
                    or i["correction"].get("sequence_mask_metric") == "product"
                    or "outlier_token_is_threshold_low" in i["correction"]
                    or "token_mask_is_threshold_low" in i["correction"]
                ),
            )
        ],
        "dppo_policy_loss": [(OTHER_RULE, _any)],
        "apply_loss_reduction_to_advantages_minibatch": [
            (OTHER_LOSS, _has("reduction", "prompt_mean", "token_mean_legacy"))
        ],
    },
    "importance_slime": {
        "compute_policy_loss": [(DUAL_CLIP, _dual_clip)],
        "compute_opsm_mask": [(OTHER_RULE, _any)],
        "compute_gspo_kl": [(OTHER_LOSS, _any)],
        "compute_approx_kl": [("ours is the third estimate", _has("kind", "k1", "k2"))],
    },
    "loss_prime_rl": {
        "default_loss_fn": [(OTHER_LOSS, _any)],
        "ipo_loss_fn": [(OTHER_LOSS, _any)],
        "ref_kl_loss_fn": [(OTHER_LOSS, _any)],
    },
    "policy_loss_trl": {
        "GRPOTrainer._compute_loss": [
            (OTHER_LOSS, lambda i, _: i["loss_type"] in ("luspo", "sapo", "vespo")),
            ("a divisor that is counted elsewhere", lambda i, _: "num_items" in i),
            (DUAL_CLIP, lambda i, _: "delta" in i),
            (OTHER_LOSS, lambda i, _: "bias" in i),
            (OTHER_RULE, lambda i, _: "opsm" in i),
            (
                THROUGH_A_MEAN,
                lambda i, _: i.get("level") == "sequence" and i["loss_type"] == "grpo",
            ),
            (
                "a divisor that is counted elsewhere",
                lambda i, note: (
                    i["loss_type"] == "dapo"
                    and "num_items" not in i
                    and not all(map(any, i["mask"]))
                ),
            ),
        ]
    },
    "policy_loss_verl": {
        "policy_loss:vanilla": [(DUAL_CLIP, _dual_clip)],
        "policy_loss:dppo_tv": [(OTHER_RULE, _any)],
        "policy_loss:gspo": [(OTHER_LOSS, _any)],
        "policy_loss:vanilla (2 data-parallel shards)": [("there is one trainer", _any)],
        "kl_penalty": [("ours is the third estimate", _has("kind", "k1", "k2", "abs", "k3+"))],
        "compute_value_loss": [("the critic's loss has no clip", lambda i, _: i["clip"] < 100)],
    },
    "rollout_correction_verl": {
        # Weights of whole sequences, and those brought to mean 1, are none of ours: of them the
        # effective sample size alone is compared.
        "compute_rollout_rejection_mask": [
            (OTHER_RULE, lambda i, _: i["criterion"] not in ("token_k1", "seq_mean_k1"))
        ],
        "policy_loss:bypass_mode": [
            (
                "a weight for whole sequences",
                lambda i, _: i["loss_type"] == "reinforce" and i["is_level"] == "sequence",
            ),
            (DUAL_CLIP, lambda i, _: i["loss_type"] == "ppo_clip" and _dual_clip(i, "")),
        ],
    },
    "sao_twinkle": {
        "DIS loss": [("no gradient flows through our weights", _has("detach_weight", False))]
    },
    "staleness_prime_rl": {
        "episode_staleness": [
            (
                "no rollout of ours begins at a version that is still to come",
                lambda i, _: i["start_version"] is None or i["start_version"] >= i["training_step"],
            )
        ]
    },
}


@pytest.mark.parametrize("name", sorted(COMPARED))
def test_every_vector_is_compared_or_left_out_for_one_reason(name: str) -> None:
    left_out = LEFT_OUT.get(name, {})
    for place, case in enumerate(every_case(name)):
        known = left_out.get(case["function"], [])
        reasons = [why for why, holds in known if holds(case["inputs"], case.get("note") or "")]
        is_compared = place in COMPARED[name]
        assert len(reasons) == (0 if is_compared else 1), (place, case["function"], reasons)


def test_the_vectors_are_those_on_what_asynchronous_training_has() -> None:
    assert set(LEFT_OUT) | {"gae_verl", "staleness_areal", "staleness_skyrl"} == set(COMPARED)
