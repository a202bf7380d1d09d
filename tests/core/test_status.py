from itertools import product

import pytest

from lagoon.status import TRANSITIONS, IllegalTransition, RunStatus, concluded, moved

RAY = ("pending", "running", "succeeded", "failed", "stopped", "missing", "unreachable")


def test_the_table_is_closed_and_every_state_can_end() -> None:
    assert set(TRANSITIONS) == set(RunStatus)
    for status in RunStatus:
        reached, frontier = {status}, [status]
        while frontier:
            for following in TRANSITIONS[frontier.pop()] - reached:
                reached.add(following)
                frontier.append(following)
        assert any(s.is_terminal for s in reached)


def test_a_terminal_run_never_moves_again() -> None:
    for status in (RunStatus.FINISHED, RunStatus.STOPPED, RunStatus.FAILED):
        assert status.is_terminal
        with pytest.raises(IllegalTransition):
            moved(status, RunStatus.RUNNING)
        assert moved(status, status) is status


@pytest.mark.parametrize("status", RunStatus)
def test_conclusions_are_legal_moves_and_the_marker_outranks_ray(status: RunStatus) -> None:
    for ray, marker, stop in product(RAY, (None, "finished", "stopped", "failed"), (True, False)):
        conclusion = concluded(status, ray, marker, stop)  # type: ignore[arg-type]
        if not status.is_active:
            assert conclusion is None
            continue
        if marker is not None:
            assert conclusion is not None
            assert conclusion[0] == marker
        elif ray in ("unreachable", "running", "pending"):
            assert conclusion is None
        else:
            assert conclusion is not None
            assert conclusion[0] == (RunStatus.STOPPED if stop else RunStatus.FAILED)
            moved(status, conclusion[0])
