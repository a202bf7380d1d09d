"""The truth table, over every combination of what it is made of."""

from collections.abc import Iterator
from itertools import product, starmap
from typing import NamedTuple, get_args

import pytest

from lagoon.status import OVER_FOR_RAY, TRANSITIONS, EndMarker, RayStatus, RunStatus
from lagoon.truth import (
    HEARTBEATS,
    LOST_AFTER_SECONDS,
    STALE_AFTER_SECONDS,
    Condition,
    Desired,
    Heartbeat,
    Verdict,
    heartbeat,
    judge,
)

RAY: tuple[RayStatus, ...] = get_args(RayStatus)
MARKERS: tuple[EndMarker | None, ...] = (None, *get_args(EndMarker))
DESIRED: tuple[Desired, ...] = get_args(Desired)


class Seen(NamedTuple):
    """One combination, and what was made of it."""

    heard: Heartbeat
    ray: RayStatus
    marker: EndMarker | None
    desired: Desired
    gone: bool
    earlier_left: bool
    stalled: bool

    @property
    def verdict(self) -> Verdict:
        left, stalled = self.earlier_left, self.stalled
        return judge(*self[:4], gone=self.gone, earlier_left=left, stalled=stalled)

    @property
    def is_cleared(self) -> bool:
        return self.gone and not self.earlier_left


def combinations() -> Iterator[Seen]:
    flags = (False, True)
    yield from starmap(Seen, product(HEARTBEATS, RAY, MARKERS, DESIRED, flags, flags, flags))


def test_every_combination_has_an_answer_that_the_status_table_allows() -> None:
    seen = list(combinations())
    assert len(seen) == 4 * 7 * 4 * 2 * 2 * 2 * 2
    for verdict in (each.verdict for each in seen):
        assert verdict.condition in get_args(Condition)
        if verdict.outcome is not None:
            assert verdict.outcome.is_terminal
            assert verdict.condition == ""
            assert verdict.outcome in TRANSITIONS[RunStatus.STARTING]
            assert verdict.outcome in TRANSITIONS[RunStatus.RUNNING]
            assert verdict.outcome in TRANSITIONS[RunStatus.STOPPING]


def test_the_end_marker_outranks_everything_but_that_a_stop_waits_for_its_processes() -> None:
    for each in combinations():
        if each.marker is None:
            continue
        verdict = each.verdict
        if each.marker == "stopped" and each.desired == "stop" and not each.is_cleared:
            assert verdict.outcome is None
            continue
        assert verdict.outcome == each.marker
        disagrees = each.marker == "finished" and each.ray in ("failed", "stopped")
        assert bool(verdict.reason) == disagrees


def test_a_run_that_was_asked_to_stop_is_stopped_only_without_processes() -> None:
    for each in combinations():
        if each.desired == "stop" and each.verdict.outcome is RunStatus.STOPPED:
            assert each.is_cleared


def test_what_is_left_of_earlier_attempts_holds_up_nothing_but_a_stop_that_was_asked_for() -> None:
    for each in combinations():
        without = each._replace(earlier_left=False).verdict
        if without.outcome is RunStatus.STOPPED and each.desired == "stop":
            continue
        assert each.verdict == without


def test_a_run_whose_processes_are_gone_is_over() -> None:
    for each in combinations():
        if each.is_cleared:
            assert each.verdict.outcome is not None


def test_without_a_marker_a_run_never_finishes() -> None:
    for each in combinations():
        if each.marker is None:
            assert each.verdict.outcome is not RunStatus.FINISHED


def test_a_driver_that_is_heard_is_alive_whatever_ray_says() -> None:
    for each in combinations():
        if each.heard == "fresh" and each.marker is None and not each.gone:
            verdict = each.verdict
            assert verdict.outcome is None
            stalled = "stalled" if each.stalled else ""
            lost = "unknown_to_ray"
            assert verdict.condition == (lost if each.ray in OVER_FOR_RAY else stalled)


def test_silence_alone_is_a_condition_and_never_an_end() -> None:
    conditions = {"stale": "unresponsive", "lost": "lost"}
    for each in combinations():
        if each.marker is None and each.ray not in OVER_FOR_RAY and not each.gone:
            verdict = each.verdict
            assert verdict.outcome is None
            if each.heard != "fresh":
                assert verdict.condition == conditions.get(each.heard, "")


def test_a_standstill_is_a_condition_of_a_run_that_is_heard_and_never_an_end() -> None:
    for each in combinations():
        without = each._replace(stalled=False).verdict
        assert each.verdict.outcome == without.outcome
        if each.verdict.condition == "stalled":
            assert each.heard == "fresh"
            assert without.condition == ""


def test_ray_out_of_reach_changes_nothing_against_a_job_that_runs() -> None:
    for each in combinations():
        if each.ray == "unreachable":
            assert each.verdict == each._replace(ray="running").verdict


@pytest.mark.parametrize("heard", ["never", "stale", "lost"])
@pytest.mark.parametrize(
    ("ray", "desired", "outcome"),
    [
        ("succeeded", "run", "failed"),
        ("failed", "run", "failed"),
        ("missing", "run", "failed"),
        ("stopped", "run", "stopped"),
        ("succeeded", "stop", "stopped"),
        ("failed", "stop", "stopped"),
        ("missing", "stop", "stopped"),
        ("stopped", "stop", "stopped"),
    ],
)
def test_a_silent_driver_whose_job_is_over_has_ended(
    heard: Heartbeat, ray: RayStatus, desired: Desired, outcome: str
) -> None:
    verdict = judge(heard, ray, None, desired, gone=True)
    assert verdict.outcome == outcome
    assert verdict.reason.endswith(".")
    if desired == "run":
        assert judge(heard, ray, None, desired) == verdict


def test_silence_is_classed_by_its_length() -> None:
    assert heartbeat(None) == "never"
    assert heartbeat(0.0) == "fresh"
    assert heartbeat(STALE_AFTER_SECONDS - 1e-3) == "fresh"
    assert heartbeat(STALE_AFTER_SECONDS) == "stale"
    assert heartbeat(LOST_AFTER_SECONDS - 1e-3) == "stale"
    assert heartbeat(LOST_AFTER_SECONDS) == "lost"
