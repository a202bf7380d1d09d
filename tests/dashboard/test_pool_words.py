from dataclasses import replace

import pytest

from dashboard.pool_words import (
    PoolNow,
    Waits,
    controller_words,
    episode_words,
    waits_of,
    what_and_why,
)
from dashboard.watch import Curve

UNBOUNDED = PoolNow("Asynchronous", batch=16, offered=18, offered_before=16)
BOUNDED = replace(UNBOUNDED, limit=48)
PACE = PoolNow("PACE", 16, has_target=True, target=32, raw_rate=0.2, smoothed_rate=0.05)


def constant(seconds: float, steps: int = 40) -> Curve:
    return Curve("c", {}, dict.fromkeys(range(1, steps + 1), seconds))


@pytest.mark.parametrize(
    ("now", "waits", "sentence", "figures"),
    [
        (
            UNBOUNDED,
            Waits(10, 31.0, 19.2, 0.0),
            "Generation is the bottleneck: the trainer waited 61.9 % of the last 10 steps for a "
            "batch.",
            "In the last 10 steps (31 s) the trainer waited 19 s for its batches.",
        ),
        (
            BOUNDED,
            Waits(10, 31.0, 0.4, 12.3),
            "Training is the bottleneck: the bound of 2 holds back new rollouts.",
            "and the generators waited 12 s for the bound.",
        ),
        (
            BOUNDED,
            Waits(10, 100.0, 1.0, 2.0),
            "Generation and training keep up with each other.",
            "the trainer waited 1.0 s",
        ),
        (
            replace(UNBOUNDED, offered=64),
            Waits(10, 31.0, 0.1, 0.0),
            "Training is the bottleneck: more groups are finished than it takes.",
            "64 were ready when the last batch of 16 was drawn; 9 steps before there were 16. "
            "Nothing limits the pool",
        ),
        (
            replace(PACE, offered=64),
            Waits(10, 31.0, 2.0, 0.0, scored=7.0),
            "Training is the bottleneck: more groups are finished than it takes.",
            "PACE gives up what is above its target. In the last 10 steps (31 s) the trainer "
            "waited 2.0 s for its batches and scored finished groups for 7.0 s.",
        ),
        (
            replace(BOUNDED, waits_for_episodes=True),
            Waits(10, 30.0, 1.0, 12.0, trained=4.0, published=20.0),
            "Publishing takes longest: 66.7 % of the last 10 steps.",
            "New weights are published when the episodes in flight are over",
        ),
        (
            BOUNDED,
            Waits(1, 30.0, 1.0, 12.0, trained=4.0, published=20.0),
            "Publishing takes longest: 66.7 % of the last step.",
            "A publish is over when every generator has proved what it was given.",
        ),
        (
            BOUNDED,
            Waits(10, 30.0, 1.0, 12.0, trained=4.0, published=6.0, evaluation=15.0),
            "Evaluations hold up training: 50.0 % of the last 10 steps.",
            "New weights waited for the evaluation of the version before",
        ),
        (
            PoolNow("GRPO (synchronous)", 16, is_synchronous=True, limit=16, offered=16),
            Waits(3, 30.0, 20.0, 9.0, published=25.0),
            "Generation and training take turns: no prompt waits at the end of any step.",
            "In the last 3 steps (30 s) the trainer waited 20 s for its batches. Asynchronous",
        ),
    ],
)
def test_what_the_pool_does_is_said_with_the_reason_and_its_seconds(
    now: PoolNow, waits: Waits, sentence: str, figures: str
) -> None:
    said = what_and_why(now, waits)
    assert said is not None
    assert said[0] == sentence
    assert figures in said[1]


def test_nothing_is_said_before_anybody_has_waited() -> None:
    assert what_and_why(UNBOUNDED, None) is None


@pytest.mark.parametrize(
    ("now", "sentence", "figures"),
    [
        (
            replace(PACE, offered=40, rejected=3),
            "PACE gave up 3 of 40 groups for the last batch.",
            "40 ready, target 32; this pool alone asks to give up 20.0 %, smoothed over the "
            "updates 5.0 %.",
        ),
        (
            replace(PACE, offered=38),
            "PACE gave up nothing yet: the pool is 6 above its target.",
            "carried to the next batch",
        ),
        (
            replace(PACE, offered=32),
            "PACE had nothing to give up: the pool is at or below its target.",
            "32 ready, target 32",
        ),
    ],
)
def test_what_a_controller_did_is_said_with_pool_target_and_rate(
    now: PoolNow, sentence: str, figures: str
) -> None:
    said = controller_words(now)
    assert said is not None
    assert said[0] == sentence
    assert figures in said[1]


def test_a_method_without_a_target_of_its_own_has_no_controller() -> None:
    assert controller_words(replace(UNBOUNDED, target=16)) is None
    assert controller_words(replace(PACE, offered=None)) is None


def test_the_waits_are_those_of_the_last_ten_steps_that_are_known() -> None:
    found = waits_of(
        constant(10.0), constant(2.0), constant(1.0), constant(4.0), None, constant(0.5)
    )
    assert found == Waits(10, 100.0, 20.0, 10.0, 40.0, 0.0, 5.0, first_step=31)
    short = waits_of(constant(10.0, 3), constant(2.0), constant(1.0))
    assert short == Waits(3, 30.0, 6.0, 3.0, first_step=1)
    assert waits_of(constant(10.0), None, constant(1.0)) is None
    assert waits_of(constant(10.0), constant(2.0), Curve("b", {})) is None


def test_steps_with_gaps_between_them_are_not_called_the_last_ones() -> None:
    def at(*steps: int) -> Curve:
        return Curve("c", {}, dict.fromkeys(steps, 1.0))

    found = waits_of(at(1, 5, 8, 9), at(1, 5, 7, 8, 9), at(*range(10)))
    assert found == Waits(2, 2.0, 2.0, 2.0, first_step=8)
    apart = waits_of(at(1, 5), at(1, 5), at(1, 5))
    assert apart is not None
    assert apart.steps == "the last step"


def test_the_bound_is_read_from_what_it_allows() -> None:
    assert UNBOUNDED.bound is None
    assert [replace(BOUNDED, limit=16 * many).bound for many in (1, 2, 5)] == [0, 1, 4]


def test_an_episodes_time_in_tools_is_a_share_of_its_length() -> None:
    assert episode_words(2.0, 1.5) == "75.0 % of the 2.0 s that one takes"
    assert episode_words(0.0, 0.0) == ""
