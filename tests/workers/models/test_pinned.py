"""The process that builds the tiny model with the instruction set pinned."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lagoon.environments.sudoku4 import Sudoku4
from workers.models.pinned import INSTRUCTIONS, build_pinned
from workers.models.recipes import Recipe, Schedule, Stage
from workers.models.tiny import build_tiny

SHORT = Recipe(
    schedule=Schedule((Stage(2, ((Sudoku4(num_blanks=1),),)),), 4, warmup_steps=1),
    num_eval_tasks=4,
)


def test_another_process_tells_how_far_it_is_and_hands_over_the_same_report(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    report = build_pinned(SHORT, tmp_path / "pinned", lines.append)
    here = build_tiny(SHORT, tmp_path / "here", lambda line: None)
    assert any("step 2 of 2" in line for line in lines)
    assert report["recipe"] == SHORT.as_json()
    assert report.keys() == here.keys()
    assert (tmp_path / "pinned" / "tokenizer.json").exists()


def test_what_the_environment_says_of_instructions_does_not_change_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_pinned(SHORT, tmp_path / "new", lambda line: None)
    for name in INSTRUCTIONS:
        monkeypatch.setenv(name, "default")  # what the process was asked with is not what it gets
    build_pinned(SHORT, tmp_path / "old", lambda line: None)
    new, old = (load_file(tmp_path / name / "model.safetensors") for name in ("new", "old"))
    assert all(torch.equal(new[name], old[name]) for name in new)


def test_a_build_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    broken = replace(SHORT, num_heads=0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        build_pinned(broken, tmp_path, lambda line: None)
