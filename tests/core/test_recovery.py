from hypothesis import given
from hypothesis import strategies as st

from lagoon.recovery import MAX_DELAY_SECONDS, next_attempt
from lagoon.truth import Desired


@given(
    is_transient=st.booleans(),
    desired=st.sampled_from(["run", "stop"]),
    num_restarts=st.integers(0, 200),
    max_restarts=st.integers(0, 100),
)
def test_only_what_may_pass_is_tried_again_and_only_so_often(
    is_transient: bool, desired: Desired, num_restarts: int, max_restarts: int
) -> None:
    restart = next_attempt(
        is_transient=is_transient,
        desired=desired,
        num_restarts=num_restarts,
        max_restarts=max_restarts,
    )
    allowed = is_transient and desired == "run" and num_restarts < max_restarts
    assert (restart is not None) == allowed
    if restart is not None:
        assert restart.number == num_restarts + 1
        assert 0 < restart.delay_seconds <= MAX_DELAY_SECONDS


def test_the_waits_grow() -> None:
    waits = [
        restart.delay_seconds
        for n in range(5)
        if (
            restart := next_attempt(
                is_transient=True, desired="run", num_restarts=n, max_restarts=5
            )
        )
    ]
    assert waits == [5.0, 20.0, 80.0, 300.0, 300.0]
