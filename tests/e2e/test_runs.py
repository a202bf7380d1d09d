"""Whole runs on real engines, without a platform. Those of evolution are in ``test_two_nodes``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lagoon import metrics as m
from lagoon.homes import short_folder
from tests.e2e.runs import Ran, moved, small_grpo

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("no_ray_left")]


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


def test_a_failing_train_tells_its_story_on_the_terminal(
    policy_folder: Path, tmp_path: Path
) -> None:
    """Its Ray is real, but there are too few tasks, so that no engine starts."""
    file, output = tmp_path / "run.yaml", tmp_path / "out"
    config = small_grpo(policy_folder, evaluation={"num_tasks": 256, "every_steps": 10})
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
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
        assert said[-1].startswith("failed: ")
        assert "asks for 256 held-out tasks" in said[-1]
        events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
        logged = [line for e in events if e["type"] == "log" for line in e["lines"]]
        assert any("Choosing held-out tasks." in line for line in logged)
        assert not any(event["type"] == "step" for event in events)
        assert list((sockets / "train").glob("session_2*"))
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
