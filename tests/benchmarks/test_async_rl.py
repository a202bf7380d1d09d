"""How the study of asynchronous methods reads its curves and judges its arms."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import async_arms as arms
from benchmarks.async_curve import Curve, Evaluation, summary, trained_seconds
from benchmarks.async_picture import COLORS, draw, mean_line
from benchmarks.async_report import Aim, report
from benchmarks.frame import Report
from benchmarks.study import DATA, resolved
from lagoon import metrics as m
from lagoon.statistics import mean_interval


def curve(*evaluations: tuple[int, float, float]) -> Curve:
    """Step, seconds and success; evaluations take a tenth of the time."""
    found = [Evaluation(step, at, success, 1.1 * at) for step, at, success in evaluations]
    step, seconds, _ = evaluations[-1]
    lags = ((1, 0.0), (step, 2.0))
    return Curve(tuple(found), step, seconds, 1.0, lags, num_dropped=0, masked=0.0)


SYNC = curve((0, 0.0, 0.3), (20, 100.0, 0.5), (40, 200.0, 0.5))
FASTER = curve((0, 0.0, 0.3), (40, 50.0, 0.6), (80, 100.0, 0.6), (160, 210.0, 0.1))
WORSE = curve((0, 0.0, 0.3), (40, 50.0, 0.4), (80, 100.0, 0.4), (160, 210.0, 0.4))
NOTHING = curve((0, 0.0, 0.3), (40, 50.0, 0.0), (80, 100.0, 0.0), (160, 210.0, 0.0))


def point(metric: m.Metric, value: float) -> dict[str, Any]:
    return {"name": metric.name, "value": value}


def step(number: int, *points: dict[str, Any]) -> dict[str, Any]:
    return {"type": "step", "step": number, "at": 0.0, "points": list(points)}


def test_an_arm_is_read_at_the_seconds_and_at_the_samples_of_another() -> None:
    assert FASTER.at("seconds", 100) == pytest.approx(0.6)
    assert FASTER.at("seconds", 155) == pytest.approx((0.6 + 0.35) / 2)  # halfway to the next one
    assert FASTER.at("wall_seconds", 110) == pytest.approx(0.6)
    assert FASTER.at("step", 40) == pytest.approx(0.45)
    assert FASTER.at("seconds", 0) == 0.3


def test_an_arm_that_ended_before_the_other_cannot_be_read_there() -> None:
    with pytest.raises(ValueError, match="a run ended at 210 seconds, before 211"):
        FASTER.at("seconds", 211)


def test_one_lucky_evaluation_is_not_a_level_that_was_reached() -> None:
    lucky = curve((0, 0.0, 0.3), (10, 10.0, 0.9), (20, 20.0, 0.3), (30, 30.0, 0.3))
    assert lucky.reaches("seconds", 0.65) is None
    assert FASTER.reaches("seconds", 0.6) == pytest.approx(100.0)
    assert FASTER.reaches("seconds", 0.525) == pytest.approx(75.0)
    assert FASTER.reaches("seconds", 0.2) == 0.0


def test_waiting_for_an_evaluation_is_not_training_time() -> None:
    events = [
        step(1, point(m.STEP_SECONDS, 2.0), point(m.EVALUATION_WAIT_SECONDS, 0.5)),
        step(2, point(m.STEP_SECONDS, 3.0)),
    ]
    assert trained_seconds(events) == {0: 0.0, 1: 1.5, 2: 4.5}


def test_what_is_kept_of_a_run_makes_its_curve() -> None:
    events = [
        step(0, point(m.HELDOUT_SUCCESS, 0.25), point(m.HELDOUT_TASKS, 8)),
        step(
            1,
            point(m.STEP_SECONDS, 2.0),
            point(m.GENERATE_SECONDS, 0.5),
            point(m.EVALUATION_WAIT_SECONDS, 0.5),
            point(m.STALENESS_TOTAL, 1.5),
            point(m.LEDGER_DROPPED, 3),
            point(m.LEDGER_DROPPED, 4),
        ),
        step(1, point(m.HELDOUT_SUCCESS, 0.5), point(m.HELDOUT_TASKS, 8)),
    ]
    found = Curve.of(summary(events))
    assert found.evaluations == ((0, 0.0, 0.25, 0.0), (1, 1.5, 0.5, 2.0))
    assert (found.steps, found.seconds, found.staleness, found.num_dropped) == (1, 1.5, 1.5, 7)
    assert found.staleness_curve == ((1, 1.5),)


def test_the_lag_of_some_steps_is_kept_with_the_step() -> None:
    steps = range(1, 51)
    events = [
        step(0, point(m.HELDOUT_SUCCESS, 0.25), point(m.HELDOUT_TASKS, 8)),
        *(
            step(
                n,
                point(m.STEP_SECONDS, 1.0),
                point(m.GENERATE_SECONDS, 0.5),
                point(m.STALENESS_TOTAL, n / 2),
            )
            for n in steps
        ),
    ]
    events[1]["points"].append(point(m.LEDGER_DROPPED, 0))
    kept = Curve.of(summary(events)).staleness_curve
    assert len(kept) == 25
    assert all(lag == number / 2 for number, lag in kept)


def test_the_mean_of_lines_goes_as_far_as_all_of_them() -> None:
    line = mean_line([[(0, 0.0), (10, 1.0), (20, 1.0)], [(0, 1.0), (5, 1.0), (12, 1.0)]], 4)
    assert [at for at, _ in line] == pytest.approx([0, 4, 8, 12])
    assert [value for _, value in line] == pytest.approx([0.5, 0.7, 0.9, 1.0])


def test_the_picture_has_a_line_for_every_arm(tmp_path: Path) -> None:
    assert len(set(COLORS)) == len(arms.ARMS)
    draw({name: [SYNC, WORSE] for name in arms.ARMS}, "a study", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def judged(curves: dict[str, Curve], seeds: int = 3) -> Report:
    others = {name: [WORSE] * seeds for name in (*arms.ARMS, *arms.ADDED)}
    return report({**others, **{name: [one] * seeds for name, one in curves.items()}})


def test_the_aims_are_judged_by_the_curves() -> None:
    found = judged({arms.SYNC: SYNC, arms.PACE: FASTER})
    assert found.missed == [
        "PACE over unfiltered at equal training time (aim +18.7 %), clipped ratio",
        "PACE less sync at equal samples (aim 0), clipped ratio",
        "PACE over unfiltered at equal training time (aim +18.7 %), no correction",
        "PACE over unfiltered at equal training time (aim +18.7 %), at one learning rate, "
        "no correction",
        "time saved to sync's success (aim 47.1 %), no correction",
        "PACE less sync at equal samples (aim 0), no correction",
    ]
    assert "time saved to sync's success (aim 47.1 %) 66.7 [66.7, 66.7] %: reached" in found.figure
    assert "by seed never, never, never: missed" in found.figure


def test_a_verdict_within_chance_says_so() -> None:
    assert Aim("gain", "", [0.1, 0.2, 0.15]).verdict == "reached"
    assert Aim("gain", "", [-0.1, 0.3, 0.1]).verdict == "reached, within the interval"
    assert Aim("gain", "", [-0.3, 0.1, -0.1]).verdict == "missed, within the interval"
    assert Aim("gain", "", [-0.2, -0.2, -0.21]).verdict == "missed"


def test_arms_that_unlearned_everything_have_no_ratio_and_reach_no_aim() -> None:
    both = {arms.UNFILTERED: NOTHING, arms.PACE: NOTHING}
    found = judged({arms.SYNC: SYNC, **both})
    assert "no ratio: the other succeeds at nothing" in found.figure
    assert any("over unfiltered" in words and "clipped" in words for words in found.missed)
    beside = judged({arms.SYNC: SYNC, arms.UNFILTERED: NOTHING, arms.PACE: FASTER})
    assert "no ratio" in beside.figure
    assert not any("over unfiltered" in words and "clipped" in words for words in beside.missed)


def test_each_seed_begins_with_another_arm() -> None:
    orders = [arms.in_turn(seed) for seed in range(len(arms.ARMS))]
    everything = [*arms.ARMS, *arms.ADDED]
    assert orders[0] == everything
    assert len({order[0] for order in orders}) == len(arms.ARMS)
    assert {frozenset(order) for order in orders} == {frozenset(everything)}


@pytest.mark.parametrize(
    ("added", "beside", "differ"),
    [
        (arms.UNFILTERED_SLOW, arms.UNFILTERED_PLAIN, {"trainer.learning_rate"}),
        (arms.PACE_RESCORED, arms.PACE, {"method.rescore"}),
    ],
)
def test_an_arm_that_was_added_tells_one_thing_apart(
    added: str, beside: str, differ: set[str]
) -> None:
    ours, theirs = (resolved(arms.cell(name, 1)).model_dump() for name in (added, beside))
    found = {
        f"{section}.{name}"
        for section, values in ours.items()
        if isinstance(values, dict)
        for name in values
        if values[name] != theirs[section][name]
    }
    assert found == differ


def test_unfiltered_training_at_one_rate_differs_from_pace_in_its_method_alone() -> None:
    ours, theirs = (
        resolved(arms.cell(name, 1)) for name in (arms.UNFILTERED_SLOW, arms.PACE_PLAIN)
    )
    assert ours.trainer == theirs.trainer
    assert ours.rollout == theirs.rollout
    assert (ours.environment, ours.budget) == (theirs.environment, theirs.budget)


def test_every_cell_is_a_run_that_validates_and_no_setting_is_chosen_on_the_studys_tasks() -> None:
    tuned = [resolved(one.cell) for one in arms.tried()]
    assert {config.seed for config in tuned} == {arms.VALIDATION_SEED}
    chosen_on = max(one.evaluation.skip_tasks + one.evaluation.num_tasks for one in tuned)
    for name in arms.ARMS:
        config = resolved(arms.cell(name, 0))
        assert chosen_on <= config.evaluation.skip_tasks
        assert config.environment == tuned[0].environment
    assert resolved(arms.long_cell()).budget.max_steps == 1000


def test_what_an_arm_was_given_is_one_of_the_settings_that_were_tried() -> None:
    found = {(one.arm, one.learning_rate, one.correction) for one in arms.tried()}
    assert len(found) == len(arms.tried())
    for name in arms.ARMS:
        config = resolved(arms.cell(name, 0))
        assert config.trainer is not None
        correction = getattr(config.method, "correction", "clip")
        assert (name, config.trainer.learning_rate, correction) in found


def test_every_arm_has_the_settings_with_which_the_kept_sweep_ended_best() -> None:
    kept = [json.loads(line) for line in (DATA / "async_rl-sweep.jsonl").read_text().splitlines()]
    ended: dict[str, list[tuple[float, float, str]]] = {name: [] for name in arms.ARMS}
    for one in arms.tried():
        (row,) = (row for row in kept if all(row[k] == v for k, v in one.cell.key.items()))
        ended[one.arm].append((Curve.of(row).at_end, one.learning_rate, one.correction))
    for name, tried in ended.items():
        config = resolved(arms.cell(name, 0))
        assert config.trainer is not None
        correction = getattr(config.method, "correction", "clip")
        assert (config.trainer.learning_rate, correction) == max(tried)[1:], name


def test_the_interval_of_a_mean_is_students() -> None:
    center, low, high = mean_interval([1.0, 2.0, 3.0])
    assert (center, low, high) == pytest.approx((2.0, 2.0 - 2.484, 2.0 + 2.484), abs=1e-3)
    with pytest.raises(ValueError, match="no mean"):
        mean_interval([])


def test_every_cell_fits_on_two_cores():
    cells = [arms.cell(name, 1) for name in (*arms.ARMS, *arms.ADDED)]
    cells += [one.cell for one in arms.tried()]
    cells += [one for _, _, one in arms.searched()]
    for config in map(resolved, [*cells, arms.long_cell()]):
        generators = config.rollout.num_generators * config.resources.cpus_per_generator
        assert generators + config.trainer.cpus <= 2
