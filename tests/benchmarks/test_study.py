"""Which cells are measured, and what is read from a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.demo import before_last_stage, report
from benchmarks.study import DATA, Cell, completed, counts_for, resolved, summary
from lagoon.metrics import HELDOUT_SUCCESS, HELDOUT_TASKS

CELLS = [Cell("es-sudoku4", seed) for seed in range(2)]


class Models:
    """A folder whose weights stand for those of every model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.change(b"first")

    def __call__(self, name: str) -> Path:
        return self._folder

    def change(self, weights: bytes) -> None:
        (self._folder / "model.safetensors").write_bytes(weights)


class Measure:
    """Counts what it is asked to measure."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def __call__(self, cell: Cell) -> dict[str, Any]:
        self.cells.append(cell)
        return {"last": len(self.cells)}


def test_a_rerun_measures_only_the_cells_that_are_missing(tmp_path):
    measure, models = Measure(), Models(tmp_path)
    first = completed("s", CELLS[:1], measure, data=tmp_path, where=models)
    both = completed("s", CELLS, measure, data=tmp_path, where=models)
    assert measure.cells == CELLS
    assert both[0] == first[0]
    assert [row["seed"] for row in both] == [0, 1]
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 2


def test_a_result_from_other_weights_does_not_count(tmp_path):
    measure, models = Measure(), Models(tmp_path)
    completed("s", CELLS[:1], measure, data=tmp_path, where=models)
    models.change(b"second")
    (row,) = completed("s", CELLS[:1], measure, data=tmp_path, where=models)
    assert len(measure.cells) == 2
    assert row["last"] == 2


def test_a_result_counts_while_its_settings_are_those_of_today(tmp_path):
    (row,) = completed("s", CELLS[:1], Measure(), data=tmp_path, where=Models(tmp_path))
    made_from = row["made_from"]
    config = made_from["config"]
    assert config["budget"]["max_steps"] == resolved(CELLS[0]).budget.max_steps
    newer = made_from | {"config": config | {"a_setting_of_tomorrow": 1}}
    changed = made_from | {"config": config | {"budget": config["budget"] | {"max_steps": 1}}}
    gone = made_from | {"config": {name: config[name] for name in config if name != "budget"}}
    assert counts_for(row, CELLS[0], newer)
    assert not counts_for(row, CELLS[0], changed)
    assert not counts_for(row, CELLS[0], gone)
    assert not counts_for(row, CELLS[1], made_from)


def test_a_cell_changes_the_preset_where_it_says_so():
    cell = Cell("es-sudoku4", 3, "shuffled_rewards", (("budget.max_steps", 3),))
    config = resolved(cell)
    assert (config.budget.max_steps, config.seed, config.control) == (3, 3, "shuffled_rewards")


def test_a_summary_reads_success_tasks_and_seconds_from_the_events():
    def evaluated(at: float, step: int, success: float) -> dict[str, Any]:
        points = [
            {"name": HELDOUT_SUCCESS.name, "value": success},
            {"name": HELDOUT_TASKS.name, "value": 256.0},
        ]
        return {"type": "step", "at": at, "step": step, "points": points}

    events = [evaluated(1, 0, 0.25), evaluated(2, 10, 0.625), evaluated(3, 20, 0.5)]
    found = summary([*events, {"type": "ended", "at": 4.5}])
    assert (found["first"], found["last"], found["best"]) == (0.25, 0.5, 0.625)
    assert (found["steps"], found["num_tasks"], found["seconds"]) == (20, 256, 3.5)
    assert found["curve"] == [(0, 0.25), (10, 0.625), (20, 0.5)]


def row(preset: str, control: str, gain: float, seconds: float = 100) -> dict[str, Any]:
    what = {"preset": preset, "seed": 0, "control": control}
    return what | {
        "first": 0.25,
        "last": 0.25 + gain,
        "num_tasks": 256,
        "steps": 9,
        "seconds": seconds,
    }


def demo(
    grpo: float, es: float, control: float = 0.0, seconds: float = 100
) -> list[dict[str, Any]]:
    """Five seeds: one gains nothing, the others as given."""
    rows = []
    for preset, gain in (("grpo-calculator", grpo), ("es-sudoku4", es)):
        rows += [row(preset, "none", gain if seed else 0.0, seconds) for seed in range(5)]
        rows += [row(preset, "shuffled_rewards", control)]
    return rows


def test_four_of_five_seeds_are_enough_for_the_demo():
    judged = report(demo(0.25, 0.15))
    assert judged.missed == []
    assert "grpo-calculator: 4 of 5 seeds gain 0.25 or more (mean +0.200)" in judged.figure


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grpo": 0.24}, "grpo-calculator: only 0 of 5 seeds gained 0.25"),
        ({"es": 0.14}, "es-sudoku4: only 0 of 5 seeds gained 0.15"),
        ({"control": 0.0625}, "grpo-calculator: controls [0] gained 0.05 or more"),
        ({"seconds": 400}, "grpo-calculator: seeds [0, 0, 0, 0, 0] took more than 360 s"),
    ],
)
def test_what_the_demo_misses_is_named(changes, words):
    assert words in report(demo(**({"grpo": 0.25, "es": 0.15} | changes))).missed


def test_the_demo_says_what_the_model_knew_before_it_was_lowered():
    level = {"greedy": 0.5781, "sampled": 0.3, "num_tasks": 128}
    words = before_last_stage({"levels_after_earlier_stages": [{"calculator": level}]})
    assert words == "Before that stage greedy success was 0.578 of 128 tasks of calculator."


def test_the_kept_results_of_the_demo_are_readable():
    lines = (DATA / "demo.jsonl").read_text().splitlines()
    for line in lines:
        assert {"preset", "seed", "control", "made_from", "first", "last"} <= set(json.loads(line))
