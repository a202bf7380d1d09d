"""What is read from the two sides, the order in which they run, and what is judged."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.peer_arms import Arm, Stretch, steps_of, stretch
from benchmarks.peer_job import Job, Step, read_steps, write_steps
from benchmarks.peers import TRL, Task, measured, quick, report, single_turn, tool_waits
from benchmarks.study import resolved
from lagoon.metrics import (
    GENERATE_SECONDS,
    HELDOUT_SUCCESS,
    RESPONSE_TOKENS,
    TOTAL_SAMPLES,
    TOTAL_TOKENS,
)
from tests.builders import grpo_config

OURS = "Lagoon, grpo"
TASK = Task(
    "sums",
    (
        Arm(TRL, "grpo-calculator", 2, 1, {}, rows_per_pass=4),
        Arm(OURS, "grpo-calculator", 2, 1, {}),
    ),
    {OURS: 2.0},
)
STRETCH = Stretch(
    num_steps=2, seconds=4.0, waited_seconds=1.0, num_trajectories=8, num_sampled=80, num_prompt=40
)


def step_event(step: int, at: float, **values: float) -> dict[str, Any]:
    names = {
        "waited": GENERATE_SECONDS,
        "samples": TOTAL_SAMPLES,
        "length": RESPONSE_TOKENS,
        "tokens": TOTAL_TOKENS,
        "success": HELDOUT_SUCCESS,
    }
    points = [{"name": names[name].name, "value": value} for name, value in values.items()]
    return {"type": "step", "step": step, "at": at, "points": points}


def test_steps_of_a_run_have_the_tokens_of_what_was_trained_on_and_not_all_that_were_sampled():
    events = [
        {"type": "status", "at": 0.0},
        step_event(0, 1.0, success=0.5),
        step_event(1, 3.0, waited=0.5, samples=4, length=10.0, tokens=90),
        step_event(2, 4.0, waited=0.25, samples=8, length=46 / 3, tokens=300),
        step_event(2, 9.0, success=0.5),
    ]
    assert steps_of(events, 2.5) == [Step(3.0, 0.5, 4, 40, 10), Step(4.0, 0.25, 4, 61, 10)]


def test_what_is_measured_begins_where_the_warm_up_ends():
    steps = [Step(10.0, 9.0, 4, 40, 10), Step(11.0, 0.5, 4, 44, 10), Step(13.0, 0.5, 4, 36, 10)]
    found = stretch(steps, 1)
    assert found == Stretch(2, 3.0, 1.0, 8, 80, 20)
    assert found.sampled_length == 10.0


def test_a_job_and_its_steps_survive_the_way_between_processes(tmp_path):
    job = Job(grpo_config(), tmp_path, 4)
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job
    assert job.num_trajectories == 4
    steps = [Step(1.5, 0.5, 4, 40, 10)]
    write_steps(steps, tmp_path / "steps.json")
    assert read_steps(tmp_path / "steps.json") == steps


def test_arms_take_turns_in_going_first():
    order = []

    def once(arm: Arm, seed: int) -> Stretch:
        order.append((arm.name, seed))
        return STRETCH

    results = measured(TASK, 2, once)
    assert order == [(TRL, 0), (OURS, 0), (OURS, 1), (TRL, 1)]
    assert results == {TRL: [STRETCH] * 2, OURS: [STRETCH] * 2}


def test_the_ratio_is_of_trajectories_a_second_within_a_repetition():
    ours = [replace(STRETCH, seconds=1.0), replace(STRETCH, seconds=4.0)]
    theirs = [STRETCH, replace(STRETCH, seconds=12.0)]
    found = report([(TASK, {TRL: theirs, OURS: ours})], "")
    assert found.missed == []
    assert found.figure == (
        "sums: Lagoon, grpo 3.50 [3.00..4.00] of TRL's trajectories/s (target >= 2)"
    )
    assert found.rows[1][:4] == ("sums", OURS, "2 × 2", "4")
    assert found.rows[1][-2:] == ("3.50 [3.00..4.00]", ">= 2")


def test_a_slower_side_and_answers_of_another_length_are_said_to_be_so():
    shorter = replace(STRETCH, num_sampled=40)
    missed = report([(TASK, {TRL: [STRETCH], OURS: [shorter]})], "").missed
    assert missed == [
        "sums: Lagoon, grpo reaches 1.00 of TRL's trajectories/s",
        "sums: Lagoon, grpo samples 5.0 tokens a trajectory where TRL samples 10.0, "
        "so that they cannot be compared",
    ]


@pytest.mark.parametrize("task", [*single_turn(), *tool_waits()], ids=lambda task: task.name)
def test_all_arms_of_a_task_train_the_same_thing(task):
    for asked in (task, quick(task)):
        configs = [resolved(arm.cell(0)) for arm in asked.arms]
        assert all(config.environment == configs[0].environment for config in configs)
        assert all(config.model == configs[0].model for config in configs)
        optimizers = [config.trainer.model_copy(update={"cpus": 1}) for config in configs]
        assert all(optimizer == optimizers[0] for optimizer in optimizers)
        job = Job(configs[0], model_folder="", rows_per_pass=asked.arms[0].rows_per_pass)
        batches = {(each.method.num_prompts, each.method.group_size) for each in configs}
        assert len(batches) == 1
        assert job.num_trajectories % job.rows_per_pass == 0
