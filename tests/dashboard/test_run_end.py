"""How the end of a run looks on its page: the steps of a stop, what is left, a standstill."""

from typing import Any

import pytest

import dashboard.views.run as run_page
from tests.dashboard import canned
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text


def stopping(**attempt: Any) -> dict[str, Any]:
    """A run that was asked to stop a minute in, with what its attempt is known to have done."""
    run = canned.running() | {
        "status": "stopping",
        "desired": "stop",
        "stop_requested_by": "ada",
        "stop_requested_at": canned.iso(60),
    }
    return run | {"attempts": [run["attempts"][0] | attempt]}


def test_a_stop_shows_its_steps_with_their_times_and_what_is_waited_for() -> None:
    run = stopping(stop_heard_at=canned.iso(61), stop_saved_at=canned.iso(64))
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    for step in ("stop requested by ada", "driver heard it", "weights saved", "driver ended",
                 "processes gone, resources free"):  # fmt: skip
        assert step in shown
    assert "11:31:01" in shown
    assert "11:31:04" in shown
    assert shown.count(">waiting<") == 3


def test_a_stopped_run_waits_for_nothing_any_more() -> None:
    moments = {"marker_at": canned.iso(65), "gone_at": canned.iso(68)}
    run = stopping(**moments) | {"status": "stopped", "ended_at": canned.iso(68)}
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert ">waiting<" not in shown
    assert "11:31:08" in shown


def test_a_stop_before_a_restart_shows_no_steps_of_a_driver_and_waits_for_the_attempt_before() -> (
    None
):
    run = stopping()
    waits = run["attempts"][0] | {"number": 2, "submitted_at": None, "started_at": None}
    run["attempts"].append(waits | {"gone_at": canned.iso(60)})
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert "driver heard it" not in shown
    assert shown.count(">waiting<") == 2  # for the processes, and the end
    run["attempts"][0] |= {"gone_at": canned.iso(67)}
    assert "11:31:07" in text(open_page(FakeApi([run]), "run", run=run["id"]))


def test_a_run_that_nobody_stops_shows_no_steps_of_a_stop() -> None:
    assert "processes gone" not in text(open_page(FakeApi(), "run", run=canned.running()["id"]))


def test_processes_that_a_failed_run_left_are_counted_on_its_page() -> None:
    run = canned.failed()
    run["attempts"][0] |= {"num_processes": 2, "gone_at": None}
    assert "2 of its processes are left." in text(open_page(FakeApi([run]), "run", run=run["id"]))
    run["attempts"][0] |= {"num_processes": 0, "gone_at": canned.iso(80)}
    assert "are left." not in text(open_page(FakeApi([run]), "run", run=run["id"]))


def test_the_page_refreshes_until_the_processes_of_a_run_that_is_over_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers: list[float | None] = []
    live = run_page._live

    def noted(site: Any, key: str, every: float | None, draw: Any) -> None:
        timers.append(every)
        live(site, key, every, draw)

    monkeypatch.setattr(run_page, "_live", noted)
    run = canned.failed()
    run["attempts"][0] |= {"num_processes": 2, "gone_at": None}
    fake = FakeApi([run])
    tested = open_page(fake, "run", run=run["id"])
    assert set(timers) == {2.0}
    run["attempts"][0] |= {"num_processes": 0, "gone_at": canned.iso(80)}
    run["cursor"] += 1
    timers.clear()
    tested.run()
    assert set(timers) == {None}


def test_a_run_that_stands_still_says_what_it_waits_for() -> None:
    run = canned.running() | {"condition": "stalled", "condition_since": canned.iso(90)}
    run["attempts"][0] |= {"activity": "starved", "idle_seconds": 300.0}
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert "no step was done for 5 min: the loop is starved" in shown
    assert "after 30 min 00 s without progress the run is ended" in shown


def test_stopping_a_run_that_starts_again_does_not_say_that_it_has_trained_nothing() -> None:
    run = canned.queued() | {"status": "starting"}
    run["attempts"] = [canned.attempt("starting") | {"number": number} for number in (1, 2)]
    tested = open_page(FakeApi([run]), "run", run=run["id"], tab="config")
    click(tested, "Stop")
    assert "what it has saved and reported stays" in text(tested)
    assert "trained nothing" not in text(tested)
