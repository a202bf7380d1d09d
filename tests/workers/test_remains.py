"""Only processes that carry the mark of an attempt that is to end are found and ended."""

import os
import signal

import pytest

from lagoon.proc import machine_id
from tests.workers.processes import TEST_HOME, sleeping
from tests.workers.test_tasks import FakePlatform, FakeRay, attempt, observed
from workers.remains import kill, processes_of


def test_processes_are_found_by_their_attempt() -> None:
    with sleeping("test-r1-a1") as first, sleeping("test-r1-a2") as second, sleeping(None):
        found = processes_of(["test-r1-a1", "test-r1-a2", "test-r1-a3"], TEST_HOME)
    assert found == {"test-r1-a1": [first.pid], "test-r1-a2": [second.pid], "test-r1-a3": []}


def test_an_attempt_whose_name_begins_like_anothers_is_not_taken_for_it() -> None:
    with sleeping("test-r1-a11"):
        assert processes_of(["test-r1-a1"], TEST_HOME) == {"test-r1-a1": []}


def test_the_same_attempt_of_another_home_is_neither_counted_nor_signalled() -> None:
    # A restored backup has attempts of the same names as the home that it was made of.
    with sleeping("test-r5-a1") as live:
        restored = TEST_HOME.with_name("restored")
        assert processes_of(["test-r5-a1"], restored) == {"test-r5-a1": []}
        assert kill("test-r5-a1", restored, [live.pid]) == 0
        assert live.poll() is None


def test_no_attempts_no_look() -> None:
    assert processes_of([], TEST_HOME) == {}


def test_killing_waits_until_they_are_gone() -> None:
    with sleeping("test-r2-a1") as process:
        assert kill("test-r2-a1", TEST_HOME, [process.pid]) == 1
        assert process.wait(0.5) == -signal.SIGKILL


def test_a_process_that_does_not_carry_the_mark_is_never_signalled() -> None:
    with sleeping("test-r3-a1") as other, sleeping(None) as unmarked:
        assert kill("test-r3-a2", TEST_HOME, [other.pid, unmarked.pid, os.getpid()]) == 0
        assert other.poll() is None
        assert unmarked.poll() is None


def test_a_process_that_has_ended_meanwhile_is_nobody() -> None:
    with sleeping("test-r4-a1") as process:
        pass
    assert kill("test-r4-a1", TEST_HOME, [process.pid]) == 0


def test_an_attempt_that_is_over_is_looked_after_under_the_name_its_job_would_have() -> None:
    attempts = [attempt(submission_id=None, status="failed")]
    body = observed(FakeRay(run_r7k2m9qd_a1="RUNNING"), FakePlatform(attempts))
    assert [job["ray_status"] for job in body["jobs"]] == ["running"]
    assert body["boot_id"] == machine_id() != ""


@pytest.mark.parametrize("ray_is_away", [False, True])
def test_what_is_due_to_be_killed_is_killed_and_what_is_not_is_counted(ray_is_away: bool) -> None:
    ray = FakeRay(run_a="RUNNING", run_b="RUNNING")
    ray.is_away = ray_is_away
    attempts = [
        attempt(id="test-a", submission_id="run-a", measure="kill"),
        attempt(id="test-b", submission_id="run-b", measure="ray_stop"),
    ]
    with sleeping("test-a") as a, sleeping("test-b") as b:
        body = observed(ray, FakePlatform(attempts))
        assert a.wait(5) == -signal.SIGKILL
        assert b.poll() is None
    assert [(job["num_processes"], job["num_killed"]) for job in body["jobs"]] == [(0, 1), (1, 0)]
    assert ray.stopped == ([] if ray_is_away else ["run-a", "run-b"])
