"""The built-in tiny model as users get it: its level leaves room to learn, and a reward to find."""

from pathlib import Path

import pytest

from workers.models.recipes import Recipe
from workers.models.tiny import build_tiny

pytestmark = pytest.mark.slow


def test_every_environment_starts_within_the_band(tmp_path: Path) -> None:
    report = build_tiny(Recipe(), tmp_path, lambda line: None)
    assert set(report["levels"]) == {"calculator", "sudoku4"}
    for name, measured in report["levels"].items():
        assert measured["num_tasks"] >= 256
        assert 0.15 <= measured["greedy"] <= 0.45, name
        assert measured["sampled"] >= 0.05, name
    (before,) = report["levels_after_earlier_stages"]
    for name, measured in report["levels"].items():
        assert before[name]["greedy"] > measured["greedy"], "the last stage lowers the level"
