"""Faults of what runs are steered by: messages that come twice, APIs that die, clocks that step."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from backend.queue import SUBMIT, CeleryQueue
from benchmarks.fault_cases import Case, Found
from benchmarks.fault_platform import ports_of, second_api, set_clock
from benchmarks.fault_stage import Stage, config
from benchmarks.fault_targets import TARGETS, kill
from cli.client import load_credentials
from cli.services.valkey import broker_url
from lagoon.status import RunStatus

WATCHED_SECONDS = 8.0
HOUR_SECONDS = 3600.0
NUM_COPIES = 3
NUM_ROUNDS = 2
PLATFORM_API = next(target for target in TARGETS if target.name == "API")
DRIVER = next(target for target in TARGETS if target.name == "driver")


def _delivered_again(stage: Stage, order: random.Random) -> Found:
    """The message that starts an attempt, three times more while it starts, while it runs, and
    when it is over."""
    run_id = stage.start("delivered again", config(order.randrange(1000), budget={"max_steps": 24}))
    attempt_id, most, found = f"{run_id}-a1", 0, Found("")
    stage.until(run_id, lambda run: run["status"] != RunStatus.QUEUED)
    most = max(most, _deliver(stage, attempt_id))
    stage.until(run_id, lambda run: run["step"] > 0)
    most = max(most, _deliver(stage, attempt_id))
    ended = stage.ended(run_id)
    found.wrong += stage.faults(ended)
    found.expect(_deliver(stage, attempt_id) == 0, "the last copy started something")
    now = stage.read(run_id)
    found.said = f"{now['status']}; never more than {most} driver"
    found.expect(most == 1, f"{most} drivers at once")
    found.expect(now["status"] == RunStatus.FINISHED, f"{now['status']}: {now['reason']}")
    found.expect(len(now["attempts"]) == 1, f"{len(now['attempts'])} attempts")
    return found


def _deliver(stage: Stage, attempt_id: str) -> int:
    """Send the copies; the most drivers that were seen in the seconds after it."""
    queue = CeleryQueue(broker_url(stage.home, ports_of(stage.home)))
    for _ in range(NUM_COPIES):
        queue.send(SUBMIT, [attempt_id])
    queue.close()
    most, until = 0, time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        most = max(most, len(DRIVER.find(stage.home, attempt_id)))
        time.sleep(0.2)
    return most


def _two_apis(stage: Stage, order: random.Random) -> Found:
    """One of two is killed while a run is to be started, then each in turn while it trains."""
    credentials = load_credentials(stage.home)
    assert credentials is not None  # the platform is up
    found = Found("")
    with second_api(stage.home, credentials.token) as other:
        beside = Stage(stage.home, other.api)
        kill(PLATFORM_API, stage.home, "", order)
        given = config(order.randrange(1000), budget={"max_steps": 40})
        run_id = beside.start("two APIs", given)
        found.expect_soon(
            beside.until(run_id, lambda run: run["status"] != RunStatus.QUEUED),
            "the API that was left did not start the run",
        )
        beside.until(run_id, lambda run: run["step"] > 0)
        for _ in range(NUM_ROUNDS):
            time.sleep(order.uniform(0.0, 4.0))
            step = beside.read(run_id)["step"]
            kill(PLATFORM_API, stage.home, "", order)
            answered = beside.until(run_id, lambda run: run["status"] == RunStatus.RUNNING)
            found.expect(answered is not None, "the API that was left did not say what is true")
            onward = _goes_on(stage, run_id, step)
            found.expect(onward is not None, "the driver did not go on after its API had died")
    time.sleep(order.uniform(0.0, 2.0))  # the second one was killed as well, and stays away
    ended = stage.ended(run_id)
    found.said = f"{ended['status']} after {len(ended['attempts'])} attempt"
    found.expect(ended["status"] == RunStatus.FINISHED, f"{ended['status']}: {ended['reason']}")
    found.expect(len(ended["attempts"]) == 1, f"{len(ended['attempts'])} attempts")
    found.wrong += stage.faults(ended)
    return found


def _goes_on(stage: Stage, run_id: str, step: int) -> float | None:
    """Seconds until the page shows the run past ``step``, and nothing wrong with it."""
    return stage.until(run_id, lambda run: run["step"] > step and not run["condition"])


def _clock_steps(stage: Stage, order: random.Random) -> Found:
    """An hour ahead, an hour back behind the machine's, then the driver is killed: all of it while
    the run trains."""
    run_id = stage.start("clock", config(order.randrange(1000), budget={"max_steps": 40}))
    found = Found("")
    stage.until(run_id, lambda run: run["step"] > 0)
    try:
        for ahead in (HOUR_SECONDS, -HOUR_SECONDS):
            time.sleep(order.uniform(0.0, 5.0))
            step = stage.read(run_id)["step"]
            set_clock(stage.home, ahead)
            onward = _goes_on(stage, run_id, step)
            found.expect(onward is not None, f"not right again, {ahead:g} s from the true time")
        killed = kill(DRIVER, stage.home, f"{run_id}-a1", order)
        found.expect(killed, "there was no driver to kill")
        found.expect_soon(
            stage.until(run_id, lambda run: len(run["attempts"]) > 1 or bool(run["condition"])),
            "nothing was said of the driver that was killed",
        )
        ended = stage.ended(run_id)
    finally:
        set_clock(stage.home, 0.0)
    found.said = f"{ended['status']} after {len(ended['attempts'])} attempts"
    found.expect(ended["status"] == RunStatus.FINISHED, f"{ended['status']}: {ended['reason']}")
    found.expect(len(ended["attempts"]) == 2, f"{len(ended['attempts'])} attempts")
    found.wrong += stage.faults(ended)
    return found


CONTROL: Sequence[Case] = (
    Case("a delivery that comes again", _delivered_again),
    Case("two APIs, each killed", _two_apis),
    Case("a clock that steps", _clock_steps),
)
