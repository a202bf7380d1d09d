"""What is due to end a run, and when it is gone: over all times and all combinations."""

from itertools import product
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from lagoon.status import OVER_FOR_RAY, RayStatus
from lagoon.stopping import (
    KILL_AFTER_SECONDS,
    LEFT_BEHIND_SECONDS,
    MEASURES,
    RAY_STOP_AFTER_SECONDS,
    is_gone,
    measure,
)
from lagoon.truth import HEARTBEATS, Desired

LOOK_SECONDS = 3.0
"""How often the workers look, by default."""
SECONDS = st.none() | st.floats(0, 1e9)


def test_a_request_escalates_on_its_timers() -> None:
    times = (0.0, RAY_STOP_AFTER_SECONDS - 0.1, RAY_STOP_AFTER_SECONDS, KILL_AFTER_SECONDS)
    assert [measure(t, None) for t in times] == ["ask", "ask", "ray_stop", "kill"]
    assert measure(None, None) == "none"


def test_what_an_attempt_leaves_behind_is_killed_whether_or_not_it_was_asked_to_stop() -> None:
    assert measure(None, LEFT_BEHIND_SECONDS - 0.1) == "none"
    assert measure(None, LEFT_BEHIND_SECONDS) == "kill"
    assert measure(1.0, LEFT_BEHIND_SECONDS) == "kill"


@given(SECONDS, SECONDS, st.floats(0, 1e6))
def test_a_measure_never_becomes_milder(
    asked: float | None, over: float | None, later: float
) -> None:
    now = measure(asked, over)
    then = measure(*(None if t is None else t + later for t in (asked, over)))
    assert MEASURES.index(then) >= MEASURES.index(now)


@given(SECONDS, SECONDS)
def test_nothing_is_killed_that_was_not_asked_to_stop_and_is_not_over(
    asked: float | None, over: float | None
) -> None:
    if measure(asked, over) == "kill":
        assert asked is not None or over is not None
    if asked is None and over is None:
        assert measure(asked, over) == "none"


@given(st.floats(0, 1e6), SECONDS)
def test_a_request_is_at_its_hardest_in_time_for_all_to_be_gone_in_half_a_minute(
    asked: float, over: float | None
) -> None:
    if asked >= 30 - 2 * LOOK_SECONDS:
        assert measure(asked, over) == "kill"


def test_an_attempt_is_gone_by_the_word_of_all_who_can_see_it() -> None:
    rays, flags = get_args(RayStatus), (False, True)
    wishes: tuple[Desired, ...] = get_args(Desired)
    for ray, count, heard, here, desired, over in product(
        rays, (0, 1), HEARTBEATS, flags, wishes, flags
    ):
        gone = is_gone(ray, count, heard, same_machine=here, desired=desired, is_over=over)
        if gone:
            assert count == 0
            assert ray in OVER_FOR_RAY
            # Nobody calls a run gone that speaks and that was neither stopped nor has ended.
            assert heard != "fresh" or over or (here and desired == "stop")
        elif count == 0 and ray in OVER_FOR_RAY:
            assert heard == "fresh"
            assert not over
