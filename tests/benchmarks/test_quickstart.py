"""The judgement: what is shown, and which targets count as missed."""

from typing import Any

import pytest

from benchmarks.first_step import FirstStep
from benchmarks.quickstart import Measured, missed, preset, report
from benchmarks.throughput import Compared
from lagoon.config import RunConfig


def measured(**changes: Any) -> Measured:
    good = {
        "starts": [21.0, 12.5],
        "first_steps": [
            FirstStep(20.0, {"queued": 0.0, "Training.": 15.0}),
            FirstStep(22.0, {"queued": 0.0, "Training.": 17.0, "once": 1.0}),
            FirstStep(40.0, {"queued": 0.0, "Training.": 33.0}),
        ],
        "memory": {"ray": 1_000_000_000, "api": 200_000_000},
        "compared": [Compared(1000, 1.0, (0.95, 1.1))],
    }
    return Measured(**(good | changes))


def test_targets_that_are_met_are_not_named():
    assert missed(measured()) == []
    assert report(measured()).missed == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first_steps": [FirstStep(30.0, {})]}, "the first trained step took 30.0 s"),
        ({"memory": {"ray": 2_500_000_000}}, "the idle stack takes 2.50 GB"),
        (
            {"compared": [Compared(1000, 1.0, (0.89, 2.0))]},
            "generators make only 0.890 of bare vLLM's tokens/s",
        ),
    ],
)
def test_each_missed_target_is_said_in_words(changes, words):
    assert missed(measured(**changes)) == [words]


def test_the_figure_holds_all_three_and_their_targets():
    figure = report(measured()).figure
    assert "first trained step 22.0 s after submit (target < 30)" in figure
    assert "idle stack 1.20 GB (target < 2.50 GB)" in figure
    assert "generators 0.95 of bare vLLM's tokens/s (target >= 0.9)" in figure
    assert "\n" not in figure


def test_the_table_has_medians_ranges_and_the_parts_that_all_repetitions_have():
    found = report(measured())
    rows = {row[0].strip(): row[1:] for row in found.rows}
    assert rows["submit to first trained step"] == ("22.0 s", "20.0 s to 40.0 s", "< 30 s")
    assert rows["start with earlier data"] == ("12.5 s", "", "")
    assert rows["Training."] == ("at 17.0 s", "at 15.0 s to at 33.0 s", "")
    assert "once" not in rows
    assert rows["ray"] == ("1.00 GB", "", "")
    assert rows["generators, tokens/s"][0] == "1000"
    assert rows["bare vLLM, tokens/s"][0] == "1053"
    assert rows["generators ÷ bare vLLM with its own scheduler"] == ("1.100", "", "")
    assert {len(row) for row in found.rows} == {len(found.header)}


def test_the_run_is_the_preset_without_waits():
    config = RunConfig.model_validate(preset())
    assert config.environment.name == "calculator"
    assert config.environment.mean_wait_seconds == 0
    assert config.rollout.num_generators == 1
