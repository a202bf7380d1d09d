"""Whole runs on real engines whose generators play while the trainer trains."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lagoon import metrics as m
from lagoon.checkpoints import CRITIC
from lagoon.config import RunConfig
from tests.e2e.runs import Ran, moved, small_grpo, weights
from workers.critic import WEIGHTS

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("no_ray_left")]


def overlapping(policy: Path, method: dict[str, Any], num_steps: int) -> RunConfig:
    """Tools that take time and more places than a batch needs, so that work goes on meanwhile."""
    return small_grpo(
        policy,
        method=method,
        environment={
            "name": "calculator",
            "num_operations": 1,
            "max_turns": 2,
            "mean_wait_seconds": 0.1,
        },
        rollout={"kv_cache_gib": 0.25, "max_concurrent": 32},
        evaluation={"num_tasks": 16, "every_steps": 2},
        budget={"max_steps": num_steps},
    )


def everything_is_accounted_for(ran: Ran, num_steps: int) -> None:
    assert (ran.status, ran.ended["outcome"]) == (0, "finished")
    steps = range(1, num_steps + 1)
    places = (m.LEDGER_TRAINED, m.POOL_GENERATING, m.POOL_READY, m.POOL_RESERVED)
    parts = [ran.values(metric) for metric in places] + [ran.total(m.LEDGER_DROPPED)]
    issued = ran.values(m.LEDGER_ISSUED)
    assert all(issued[step] == sum(part[step] for part in parts) for step in steps)
    assert {ran.values(m.STALENESS_COVERAGE)[step] for step in steps} == {1.0}
    assert set(ran.values(m.VERIFIED_ENGINES).values()) == {1.0}
    assert set(ran.values(m.MISMATCHED_ENGINES).values()) == {0.0}
    assert max(ran.values(m.CANARY_DIFF).values()) < 1e-5
    # What the trained version sampled is the same policy in two programs, whatever else went on.
    mismatch = ran.values(m.DRIFT_LOGPROB_ABS, cause="mismatch").values()
    assert all(value < 1e-5 for value in mismatch if not math.isnan(value))
    lagging = ran.values(m.DRIFT_TOKENS, cause="lag")
    assert any(lagging[step] > 0 for step in steps), "nothing was played beside the training"
    for step, counts in ran.histograms(m.TOTAL_HISTOGRAM).items():
        assert sum(n for lag, n in counts.items() if lag != "0") == lagging.get(step, 0)


def test_a_pace_run_trains_on_what_lags_scores_it_and_gives_up_what_its_pool_has_too_much_of(
    policy_folder: Path, tmp_path: Path
) -> None:
    method = {"name": "pace", "num_prompts": 2, "group_size": 4, "target": 2, "smoothing": 0.0}
    ran = Ran(overlapping(policy_folder, method, 6), tmp_path)
    everything_is_accounted_for(ran, 6)
    assert sum(ran.total(m.REJECTED).values()) > 0
    assert list(ran.values(m.HELDOUT_SUCCESS)) == [0, 2, 4, 6]
    assert moved(policy_folder, tmp_path / "checkpoints" / "final")


def test_a_sao_run_trains_its_critic_alone_and_then_both(
    policy_folder: Path, tmp_path: Path
) -> None:
    method = {"name": "sao", "num_prompts": 8, "max_staleness": 2, "critic_warmup_steps": 2}
    ran = Ran(overlapping(policy_folder, method, 5), tmp_path)
    everything_is_accounted_for(ran, 5)
    assert list(ran.values(m.VALUE_LOSS)) == [1, 2, 3, 4, 5]
    assert all(math.isfinite(value) for value in ran.values(m.VALUE_LOSS).values())
    assert list(ran.values(m.GRAD_NORM)) == [3, 4, 5], "the policy waits for its critic"
    final = tmp_path / "checkpoints" / "final"
    assert moved(policy_folder, final)
    critic, before = load_file(final / CRITIC), weights(policy_folder)
    for part, is_trained in (("self_attn.q_proj", False), ("mlp.up_proj", True)):
        name = f"layers.0.{part}.weight"
        (now,) = (
            value for key, value in critic.items() if key.startswith(WEIGHTS) and key.endswith(name)
        )
        assert torch.equal(now, before[f"model.{name}"]) is not is_trained
