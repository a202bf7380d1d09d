"""When a standstill is said, and when it ends a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.stalls import ACTIVITIES, Activity, idle_words, said_after, standstill

ORDER = ("", "stalled", "over")
ACTIVITY = st.sampled_from(ACTIVITIES)


@given(st.floats(0, 1e7), st.floats(0, 1e7), ACTIVITY, st.floats(1, 604_800))
def test_a_standstill_only_gets_worse(
    first: float, later: float, activity: Activity, limit: float
) -> None:
    before, after = (standstill(t, activity, limit) for t in (first, first + later))
    assert ORDER.index(after) >= ORDER.index(before)


@given(st.floats(1, 604_800), ACTIVITY)
def test_it_is_said_before_it_ends_a_run(limit: float, activity: Activity) -> None:
    assert said_after(limit) < limit
    assert standstill(0.0, activity, limit) == ""
    if activity == "paused":  # that is none, however long it lasts
        assert standstill(2 * limit, activity, limit) == ""
        return
    assert standstill(said_after(limit), activity, limit) == "stalled"
    patient = activity in ("starting", "ending")
    assert standstill(limit, activity, limit) == ("stalled" if patient else "over")


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_it_says_what_is_waited_for(activity: Activity) -> None:
    words = idle_words(activity, 1800.0)
    assert words.startswith("No trajectory has finished and no step was done for 30 min: ")
    assert words.endswith(".")
    assert len({idle_words(each, 1800.0) for each in ACTIVITIES}) == len(ACTIVITIES)


def test_lengths_are_said_as_people_say_them() -> None:
    said = [idle_words("starved", t).split("for ")[1].split(":")[0] for t in (90, 600, 9000)]
    assert said == ["90 s", "10 min", "2.5 h"]
