"""Whole runs of both loop families on real engines, without a platform."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lagoon import metrics as m
from lagoon.checkpoints import UPDATES
from lagoon.homes import short_folder
from tests.e2e.runs import Ran, small_es, small_grpo
from workers.resuming import candidates_in

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("no_ray_left")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next(folder.glob("*.safetensors")))


def moved(before: Path, after: Path) -> bool:
    old, new = weights(before), weights(after)
    return any(not torch.equal(old[name], new[name]) for name in new)


def test_a_grpo_run_is_on_policy_exactly_and_saves_what_it_learned(
    policy_folder: Path, tmp_path: Path
) -> None:
    ran = Ran(small_grpo(policy_folder), tmp_path)
    assert (ran.status, ran.ended["outcome"]) == (0, "finished")
    # The same policy in two programs: the engine that sampled and the trainer that learns.
    mismatch = ran.values(m.DRIFT_LOGPROB_ABS)  # of its one cause: nothing lags
    assert list(mismatch) == [1, 2, 3]
    assert all(value < 1e-5 for value in mismatch.values())
    assert all(set(counts) == {"0"} for counts in ran.histograms(m.TOTAL_HISTOGRAM).values())
    assert set(ran.values(m.STALENESS_COVERAGE).values()) == {1.0}
    assert set(ran.values(m.VERIFIED_ENGINES).values()) == {1.0}
    assert set(ran.values(m.MISMATCHED_ENGINES).values()) == {0.0}
    assert max(ran.values(m.CANARY_DIFF).values()) < 1e-5
    assert list(ran.values(m.HELDOUT_SUCCESS)) == [0, 3]
    final = tmp_path / "checkpoints" / "final"
    assert moved(policy_folder, final)
    assert json.loads((final / "config.json").read_text())["model_type"] == "qwen3"
    assert (final / "tokenizer.json").exists()


def test_an_es_run_moves_the_weights_by_its_norm_law_and_its_log_gives_them_again(
    policy_folder: Path, tmp_path: Path
) -> None:
    ran = Ran(small_es(policy_folder), tmp_path)
    assert (ran.status, ran.ended["outcome"]) == (0, "finished")
    norms, laws = ran.values(m.UPDATE_NORM), ran.values(m.UPDATE_NORM_LAW)
    for step, norm in norms.items():
        # Either the members differed, and z-scores fix the length, or nothing moved at all.
        assert norm == pytest.approx(laws[step], rel=0.02) or norm == 0.0
    assert all(set(counts) == {"0"} for counts in ran.histograms(m.TOTAL_HISTOGRAM).values())
    final = tmp_path / "checkpoints" / "final"
    assert moved(policy_folder, final) == any(norms.values())
    assert any(norms.values())

    # As a kill right after the last update leaves it: no weights, only the log of updates.
    left = tmp_path / "left" / "checkpoints"
    left.mkdir(parents=True)
    shutil.copy(tmp_path / "checkpoints" / UPDATES, left)
    again = Ran(small_es(policy_folder), tmp_path / "again", candidates_in(left.parent))
    assert (again.status, again.ended["outcome"]) == (0, "finished")
    assert again.values(m.UPDATE_NORM) == norms  # reported once more
    made_again = weights(tmp_path / "again" / "checkpoints" / "final")
    assert all(torch.equal(made_again[name], tensor) for name, tensor in weights(final).items())


def test_a_model_folder_without_a_tokenizer_fails_with_one_sentence(
    policy_folder: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((policy_folder / name).read_bytes())
    ran = Ran(small_grpo(bare), tmp_path / "out")
    assert (ran.status, ran.ended["outcome"]) == (1, "failed")
    assert "tokenizer" in ran.ended["reason"]
    assert "\n" not in ran.ended["reason"]
    assert any("tokenizer" in line for e in ran.events if e["type"] == "log" for line in e["lines"])


def test_too_few_held_out_tasks_fail_before_any_engine_starts(
    policy_folder: Path, tmp_path: Path
) -> None:
    evaluation = {"num_tasks": 256, "every_steps": 10}
    ran = Ran(small_grpo(policy_folder, evaluation=evaluation), tmp_path)
    assert (ran.status, ran.ended["outcome"]) == (1, "failed")
    assert "asks for 256 held-out tasks" in ran.ended["reason"]
    assert "\n" not in ran.ended["reason"]
    assert not any(event["type"] == "step" for event in ran.events)


def test_a_failing_train_tells_its_story_on_the_terminal(tmp_path: Path) -> None:
    """Its Ray is real, but the model is missing, so that no engine starts."""
    file, output = tmp_path / "run.yaml", tmp_path / "out"
    file.write_text(
        "model: {path: no/such/model}\nmethod: {name: grpo}\nenvironment: {name: calculator}\n"
        "evaluation: {num_tasks: 4}\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "train", str(file), "--output", str(output)],
        env={name: value for name, value in environment.items() if name != "LAGOON_HOME"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    sockets = short_folder(tmp_path / ".lagoon")
    try:
        assert ended.returncode == 1
        said = ended.stderr.splitlines()
        assert any(line.endswith("INFO Choosing held-out tasks.") for line in said)
        assert said[-1].startswith("failed: The model cannot be used: model 'no/such/model'")
        events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
        logged = [line for e in events if e["type"] == "log" for line in e["lines"]]
        assert any("Choosing held-out tasks." in line for line in logged)
        assert list((sockets / "train").glob("session_2*"))
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
