"""What dead drivers left is delivered once, in order, whoever is at it and whatever fails."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery.exceptions import Retry
from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon.events import EventBatch, LogLogged
from lagoon.proc import machine_id
from lagoon.spools import attempts_with_spools, is_delivered, spool_of
from tests.workers.processes import sleeping
from tests.workers.test_tasks import ATTEMPT, FakePlatform, FakeRay, attempt, ray_of
from tests.workers.test_tasks import platform_of as platform_at
from workers import tasks
from workers.leftovers import SpoolLeft, deliver, deliver_all, deliver_before
from workers.platform import Platform, PlatformFailed
from workers.spool import Spool
from workers.tasks import observe_attempts

NEXT = "r7k2m9qd-a2"
LATER = 60.0


def numbered(number: int) -> bytes:
    events = (LogLogged(at=0.0, lines=(f"line {number}",)),)
    return EventBatch(writer="driver", number=number, events=events).model_dump_json().encode()


def problem(status: int, slug: str, **members: int) -> httpx.Response:
    return httpx.Response(status, json={"type": f"urn:lagoon:problem:{slug}", **members})


class FakeApi(httpx.BaseTransport):
    """Stores batches as the API does; ``answer`` may answer the n-th request instead."""

    def __init__(self, num_stored: int = 0) -> None:
        self.stored = [numbered(number) for number in range(1, num_stored + 1)]
        self.num_requests = 0
        self.answer: Callable[[int], httpx.Response | None] = lambda _: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.num_requests += 1
        assert request.url.path.endswith("/events")
        if (answer := self.answer(self.num_requests)) is not None:
            return answer
        body = request.read()
        try:
            number = json.loads(body)["number"]
        except ValueError:
            return problem(422, "invalid-events")
        if number > len(self.stored) + 1:
            return problem(409, "batch-gap", expected_number=len(self.stored) + 1)
        if number == len(self.stored) + 1:
            self.stored.append(body)
        return httpx.Response(202, json={"accepted_number": len(self.stored)})

    @property
    def lines(self) -> list[str]:
        batches = [EventBatch.model_validate_json(body) for body in self.stored]
        assert [batch.number for batch in batches] == list(range(1, len(batches) + 1))
        events = [event for batch in batches for event in batch.events]
        return [line for event in events if isinstance(event, LogLogged) for line in event.lines]


def platform_of(api: FakeApi) -> Platform:
    return Platform("http://api.test", "lgs_x", api)


def left(home: Path, num_batches: int, attempt_id: str = ATTEMPT, per_file: int = 2) -> Path:
    """A spool of so many batches, in files of ``per_file``."""
    folder = spool_of(home, attempt_id)
    folder.mkdir(parents=True)
    for first in range(1, num_batches + 1, per_file):
        numbers = range(first, min(first + per_file, num_batches + 1))
        lines = b"".join(numbered(number) + b"\n" for number in numbers)
        (folder / f"{first:010d}.jsonl").write_bytes(lines)
    return folder


def lines(last: int) -> list[str]:
    return [f"line {number}" for number in range(1, last + 1)]


def test_a_spool_to_which_nothing_was_written_is_nothing_to_deliver(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, ATTEMPT)
    spool.mkdir(parents=True)
    (spool / "0000000001.jsonl").touch()
    assert attempts_with_spools(tmp_path, delivered=False) == []


def test_the_rest_of_a_spool_is_sent_and_the_spool_says_so(tmp_path: Path) -> None:
    folder, api = left(tmp_path, 7), FakeApi(num_stored=4)
    assert attempts_with_spools(tmp_path, delivered=False) == [ATTEMPT]
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    assert api.lines == lines(7)
    assert api.num_requests == 4  # one to learn what has arrived, three that had not
    assert is_delivered(folder)
    assert attempts_with_spools(tmp_path, delivered=False) == []
    assert attempts_with_spools(tmp_path, delivered=True) == [ATTEMPT]


def test_what_a_real_spool_holds_is_what_arrives(tmp_path: Path) -> None:
    spool = Spool(spool_of(tmp_path, ATTEMPT), quota_bytes=16 * 1024)
    for number in range(1, 101):
        spool.append(numbered(number))
        if number <= 60:
            spool.peek()
            spool.delivered()
    api = FakeApi(num_stored=60)
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    assert api.lines == lines(100)


def test_a_line_that_the_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    folder, api = left(tmp_path, 3), FakeApi()
    with (folder / "0000000003.jsonl").open("ab") as file:
        file.write(numbered(4)[:20])
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    assert api.lines == lines(3)


def test_batches_that_died_in_memory_are_said_and_what_follows_arrives(tmp_path: Path) -> None:
    folder, api = left(tmp_path, 8), FakeApi(num_stored=1)
    (folder / "0000000003.jsonl").unlink()
    (folder / "0000000005.jsonl").unlink()
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    said = "the events of batches 3 to 6 died with the driver"
    assert api.lines == ["line 1", "line 2", said, "line 7", "line 8"]


def test_a_batch_that_cannot_be_stored_is_said_and_holds_nothing_up(tmp_path: Path) -> None:
    folder, api = left(tmp_path, 3, per_file=1), FakeApi()
    (folder / "0000000002.jsonl").write_bytes(b"\0\0\0\n")
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    first, said, last = api.lines
    assert (first, last) == ("line 1", "line 3")
    assert said.startswith("events that the driver left were refused by the API")


def test_a_task_is_short_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder, api = left(tmp_path, 9), FakeApi()
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, 4, lambda: api.num_requests) == "more"
        assert len(api.stored) == 4
        assert not is_delivered(folder)
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    assert api.lines == lines(9)


@pytest.mark.parametrize("slug", ["attempt-not-gone", "changed-meanwhile"])
def test_what_the_api_does_not_take_now_is_left_to_later(tmp_path: Path, slug: str) -> None:
    folder, api = left(tmp_path, 2), FakeApi()
    api.answer = lambda _: problem(409, slug)
    with platform_of(api) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "later"
    assert not is_delivered(folder)


@pytest.mark.parametrize("slug", ["not-found", "fenced-out"])
def test_what_nobody_will_ever_want_is_done_with(tmp_path: Path, slug: str) -> None:
    folder, api = left(tmp_path, 2), FakeApi()
    api.answer = lambda _: problem(404 if slug == "not-found" else 409, slug)
    with platform_of(api) as platform:
        deliver_all([ATTEMPT], platform, tmp_path, LATER, lambda: 0.0)
    assert is_delivered(folder)


def test_a_spool_that_cannot_be_read_does_not_hold_up_the_others(tmp_path: Path) -> None:
    spool_of(tmp_path, ATTEMPT).mkdir(parents=True)
    (spool_of(tmp_path, ATTEMPT) / "0000000001.jsonl").mkdir()
    left(tmp_path, 2, "rother00-a1")
    api = FakeApi()
    with platform_of(api) as platform:
        deliver_all([ATTEMPT, "rgone000-a1", "rother00-a1"], platform, tmp_path, LATER)
    assert api.lines == lines(2)


def test_a_batch_over_which_the_api_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    left(tmp_path, 2)
    left(tmp_path, 2, "rother00-a1")
    api = FakeApi()
    api.answer = lambda number: httpx.Response(500) if number == 1 else None
    with platform_of(api) as platform:
        deliver_all([ATTEMPT, "rother00-a1"], platform, tmp_path, LATER, lambda: 0.0)
    assert api.lines == lines(2)
    assert attempts_with_spools(tmp_path, delivered=False) == [ATTEMPT]


def test_a_spool_without_a_batch_says_nothing_yet(tmp_path: Path) -> None:
    folder = left(tmp_path, 0)
    with platform_of(FakeApi()) as platform:
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "later"
    assert not is_delivered(folder)


def test_an_attempt_starts_when_those_before_it_are_delivered(tmp_path: Path) -> None:
    left(tmp_path, 3)
    left(tmp_path, 3, NEXT)  # its own is not looked at
    api = FakeApi()
    with platform_of(api) as platform:
        with pytest.raises(SpoolLeft, match=ATTEMPT):
            deliver_before(NEXT, platform, tmp_path, 0.0)
        deliver_before(NEXT, platform, tmp_path, LATER)
        assert api.lines == lines(3)
        assert not is_delivered(spool_of(tmp_path, ATTEMPT))  # its last processes may add to it
        api.answer = lambda _: problem(409, "attempt-not-gone")
        deliver_before("r7k2m9qd-a3", platform, tmp_path, LATER)  # it does not wait for ever
        deliver_before("rwithout-a2", platform, tmp_path, LATER)


def test_two_on_one_machine_do_not_do_the_same_work(tmp_path: Path) -> None:
    left(tmp_path, 2)
    api, outcomes = FakeApi(), []
    with platform_of(api) as platform:

        def meanwhile(number: int) -> None:
            if number == 1:
                outcomes.append(deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0))

        api.answer = meanwhile
        assert deliver(ATTEMPT, platform, tmp_path, LATER, lambda: 0.0) == "all"
    assert outcomes == ["more"]
    assert api.num_requests == 2


@settings(max_examples=40)
@given(
    num_batches=st.integers(1, 12),
    per_file=st.integers(1, 5),
    lost=st.sets(st.integers(1, 12)),
    is_cut=st.booleans(),
    data=st.data(),
)
def test_whatever_fails_all_arrives_once_and_in_order(
    num_batches: int, per_file: int, lost: set[int], is_cut: bool, data: st.DataObject
) -> None:
    """Tasks end half-way, answers are lost, other machines are at the same spool."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folder = left(home, num_batches, per_file=per_file)
        there = set(range(1, num_batches + 1))
        for path in folder.glob("*.jsonl"):
            first = int(path.stem)
            if first in lost and first + per_file <= num_batches:
                path.unlink()
                there -= set(range(first, first + per_file))
        if is_cut:
            with max(folder.glob("*.jsonl")).open("ab") as file:
                file.write(b'{"writer":')
        stored = data.draw(st.integers(0, num_batches), label="stored")
        api = FakeApi(stored)
        left(home, num_batches, NEXT)  # the same batches, as another machine sees them

        def failing(_: int) -> httpx.Response | None:
            return httpx.Response(503) if data.draw(st.booleans(), label="fails") else None

        api.answer = failing
        with platform_of(api) as platform:
            for _ in range(4):
                attempt_id = data.draw(st.sampled_from([ATTEMPT, NEXT]), label="who")
                end = api.num_requests + data.draw(st.integers(0, 4), label="requests")
                try:
                    deliver(attempt_id, platform, home, end, lambda: api.num_requests)
                except PlatformFailed:
                    continue
            api.answer = lambda _: None
            assert deliver(ATTEMPT, platform, home, LATER, lambda: 0.0) == "all"
        assert len(api.stored) == num_batches
        arrived = {line for line in api.lines if line.startswith("line ")}
        assert arrived >= {f"line {number}" for number in there}
        assert len(arrived) == sum(line.startswith("line ") for line in api.lines)


@pytest.mark.parametrize(
    ("changes", "job", "is_due"),
    [
        (None, "FAILED", True),  # over, and gone
        ({"boot_id": machine_id()}, "FAILED", True),
        ({"boot_id": machine_id()}, "RUNNING", False),
        ({"boot_id": "another machine"}, "FAILED", False),
        ({"boot_id": None}, "FAILED", False),
        ({"boot_id": machine_id(), "submission_id": None}, "FAILED", False),
    ],
)
def test_what_a_driver_left_is_delivered_when_there_is_no_driver_any_more(
    tmp_path: Path, changes: dict[str, Any] | None, job: str, is_due: bool
) -> None:
    left(tmp_path, 1)
    listed = [] if changes is None else [attempt(**changes)]
    ray = FakeRay(run_r7k2m9qd_a1=job)
    with platform_at(FakePlatform(listed)) as platform, ray_of(ray) as jobs:
        assert observe_attempts(platform, jobs, tmp_path) == ([ATTEMPT] if is_due else [])


class TakingPlatform(FakePlatform):
    """Takes whatever was left, too."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        is_left = request.url.path.endswith("/events")
        return httpx.Response(202, json={"accepted_number": 1}) if is_left else answer


def test_a_look_has_what_is_left_delivered_and_a_start_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = spool_of(tmp_path, ATTEMPT)
    spool.mkdir(parents=True)
    (spool / "0000000001.jsonl").write_text('{"number":1}\n')
    platform = TakingPlatform()
    monkeypatch.setenv("LAGOON_HOME", str(tmp_path))
    monkeypatch.setattr(tasks, "open_platform", lambda _: platform_at(platform))
    monkeypatch.setattr(tasks, "open_ray", lambda _: ray_of(FakeRay()))
    sent = tasks.deliver_left
    monkeypatch.setattr(sent, "apply_async", lambda args, expires: sent(*args))
    tasks.observe()
    assert platform.posted[1:] == [(f"/attempts/{ATTEMPT}/events", {"number": 1})]
    assert is_delivered(spool)
    (spool / "delivered").unlink()
    monkeypatch.setattr(tasks, "DELIVER_SECONDS", 0.0)
    with pytest.raises(Retry):
        tasks.submit.apply(("r7k2m9qd-a2",), throw=True)


class FailingPlatform(FakePlatform):
    """Fails over whatever was left."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_left = request.url.path.endswith("/events")
        return httpx.Response(500) if is_left else super().handle_request(request)


def test_a_batch_over_which_the_api_always_fails_puts_a_start_off_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, 1)
    ray = FakeRay()
    monkeypatch.setenv("LAGOON_HOME", str(tmp_path))
    monkeypatch.setattr(tasks, "open_platform", lambda _: platform_at(FailingPlatform()))
    monkeypatch.setattr(tasks, "open_ray", lambda _: ray_of(ray))
    with pytest.raises(Retry):
        tasks.submit.apply((NEXT,), throw=True, retries=tasks.LEFT_RETRIES - 1)
    assert not ray.bodies
    tasks.submit.apply((NEXT,), throw=True, retries=tasks.LEFT_RETRIES)
    assert ray.bodies


def test_a_driver_that_is_seen_sends_its_events_itself(tmp_path: Path) -> None:
    spool_of(tmp_path, ATTEMPT).mkdir(parents=True)
    fake = FakePlatform([attempt(boot_id=machine_id())])
    with (
        sleeping(ATTEMPT, tmp_path),
        platform_at(fake) as platform,
        ray_of(FakeRay(run_r7k2m9qd_a1="FAILED")) as ray,
    ):
        assert observe_attempts(platform, ray, tmp_path) == []
