import pytest

from lagoon.status import TRANSITIONS, IllegalTransition, RunStatus, moved


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
