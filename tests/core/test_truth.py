"""The truth table, over every combination of what it is made of."""

from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest

from lagoon.status import TRANSITIONS, EndMarker, RayStatus, RunStatus
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
OVER_FOR_RAY = ("succeeded", "failed", "missing", "stopped")


def combinations() -> Iterator[tuple[Heartbeat, RayStatus, EndMarker | None, Desired, Verdict]]:
    for heard, ray, marker, desired in product(HEARTBEATS, RAY, MARKERS, DESIRED):
        yield heard, ray, marker, desired, judge(heard, ray, marker, desired)


def test_every_combination_has_an_answer_that_the_status_table_allows() -> None:
    seen = list(combinations())
    assert len(seen) == 4 * 7 * 4 * 2
    for *_, verdict in seen:
        assert verdict.condition in get_args(Condition)
        if verdict.outcome is not None:
            assert verdict.outcome.is_terminal
            assert verdict.condition == ""
            assert verdict.outcome in TRANSITIONS[RunStatus.STARTING]
            assert verdict.outcome in TRANSITIONS[RunStatus.RUNNING]
            assert verdict.outcome in TRANSITIONS[RunStatus.STOPPING]


def test_the_end_marker_outranks_everything() -> None:
    for _, ray, marker, _, verdict in combinations():
        if marker is not None:
            assert verdict.outcome == marker
            disagrees = marker == "finished" and ray in ("failed", "stopped")
            assert bool(verdict.reason) == disagrees


def test_without_a_marker_a_run_never_finishes() -> None:
    assert not any(
        verdict.outcome is RunStatus.FINISHED
        for *_, marker, _, verdict in combinations()
        if marker is None
    )


def test_a_driver_that_is_heard_is_alive_whatever_ray_says() -> None:
    for heard, ray, marker, _, verdict in combinations():
        if heard == "fresh" and marker is None:
            assert verdict.outcome is None
            assert verdict.condition == ("unknown_to_ray" if ray in OVER_FOR_RAY else "")


def test_silence_alone_is_a_condition_and_never_an_end() -> None:
    for heard, ray, marker, _, verdict in combinations():
        if marker is None and ray not in OVER_FOR_RAY:
            assert verdict.outcome is None
            assert verdict.condition == {"stale": "unresponsive", "lost": "lost"}.get(heard, "")


def test_ray_out_of_reach_changes_nothing_against_a_job_that_runs() -> None:
    for heard, marker, desired in product(HEARTBEATS, MARKERS, DESIRED):
        away = judge(heard, "unreachable", marker, desired)
        assert away == judge(heard, "running", marker, desired)


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
    verdict = judge(heard, ray, None, desired)
    assert verdict.outcome == outcome
    assert verdict.reason.endswith(".")


def test_silence_is_classed_by_its_length() -> None:
    assert heartbeat(None) == "never"
    assert heartbeat(0.0) == "fresh"
    assert heartbeat(STALE_AFTER_SECONDS - 1e-3) == "fresh"
    assert heartbeat(STALE_AFTER_SECONDS) == "stale"
    assert heartbeat(LOST_AFTER_SECONDS - 1e-3) == "stale"
    assert heartbeat(LOST_AFTER_SECONDS) == "lost"
