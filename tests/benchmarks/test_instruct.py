"""How the run of the real instruct model is judged and drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.instruct import PICTURE, PRESET, QUICK, draw, missed, rows
from benchmarks.study import DATA, Cell, resolved

GOOD: dict[str, Any] = {
    "sampled_before": 0.25,
    "first": 0.35,
    "last": 0.6,
    "num_tasks": 256,
    "steps": 20,
    "seconds": 900.0,
    "step_seconds": 30.0,
    "rewards": [(1, 0.2), (2, 0.4)],
    "curve": [(0, 0.35), (2, 0.6)],
}


def test_a_run_that_meets_every_target_misses_none():
    assert missed(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_tasks": 128, "last": 0.8}, "only 128 held-out tasks"),
        ({"sampled_before": 0.05}, "sampled success before training was 0.050"),
        ({"sampled_before": 0.7}, "sampled success before training was 0.700"),
        ({"last": 0.45}, "success gained only +0.100"),
        ({"last": 0.45}, "the gain's interval starts at +0.013"),
        ({"seconds": 3601}, "it took 3601 s"),
    ],
)
def test_what_a_run_misses_is_named(changes, words):
    assert words in missed(GOOD | changes)


def test_the_table_shows_the_gain_with_its_interval():
    assert ("gain", "+0.250", ">= 0.15") in rows(GOOD)
    assert ("95 % interval of the gain", "+0.164 to +0.331", "> 0.05") in rows(GOOD)


def test_the_curve_is_a_picture(tmp_path: Path):
    draw(GOOD, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_run_is_evaluated_on_enough_tasks_of_a_real_model():
    config = resolved(Cell(PRESET, 0))
    assert config.model.path == "smollm2-135m-instruct"
    assert config.environment.name == "reasoning_gym"
    assert config.evaluation.num_tasks >= 200


def test_a_quick_look_is_a_valid_run():
    assert resolved(Cell(PRESET, 0, changes=QUICK)).budget.max_steps == 1


def test_the_kept_result_is_readable_and_drawn():
    newest = (DATA / "instruct.jsonl").read_text().splitlines()[-1]
    assert set(GOOD) <= set(json.loads(newest))
    assert PICTURE.is_file()
