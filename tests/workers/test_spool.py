import logging
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lagoon.events import Event, EventBatch, LogLogged, StatusLogged, StepLogged, TelemetryDropped
from lagoon.metrics import LEDGER_ISSUED, LOSS
from lagoon.points import Point
from workers.spool import NOTICE_SECONDS, Spool

QUOTA = 20_000


def log(text: str = "x" * 100) -> LogLogged:
    return LogLogged(at=0.0, lines=(text,))


def status(number: int) -> StatusLogged:
    return StatusLogged(at=0.0, phase="running", message=f"phase {number}")


def step(number: int) -> StepLogged:
    ledger = Point(name=LEDGER_ISSUED.name, value=number)
    return StepLogged(at=0.0, step=number, points=(Point(name=LOSS.name, value=1.0), ledger))


class Hand:
    """A stopwatch that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def write(spool: Spool, events: list[Event]) -> None:
    events = spool.admitted(events)
    batch = EventBatch(writer="driver", number=spool.num_written + 1, events=tuple(events))
    spool.append(batch.model_dump_json().encode())


def take(spool: Spool) -> EventBatch:
    body = spool.peek()
    assert body is not None
    spool.delivered()
    return EventBatch.model_validate_json(body)


def rest(spool: Spool) -> list[EventBatch]:
    return [take(spool) for _ in range(spool.num_written - spool.num_sent)]


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*"))


def test_delivered_batches_give_their_room_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    for _ in range(1000):
        write(spool, [log()])
        take(spool)
    assert on_disk(tmp_path) <= QUOTA
    assert not spool.notices(0.0)


def test_a_driver_that_starts_anew_leaves_nothing_of_one_that_was_never_heard(
    tmp_path: Path,
) -> None:
    for texts in (["first", "second", "third"], ["other"]):
        spool = Spool(tmp_path, quota_bytes=QUOTA)
        for text in texts:
            write(spool, [log(text)])
    [file] = tmp_path.glob("*")
    [line] = file.read_text().splitlines()
    assert "other" in line


def test_below_the_quota_nothing_is_dropped_however_long_nobody_takes_anything(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path, quota_bytes=10 * QUOTA)
    for number in range(200):
        write(spool, [log(), status(number), step(number)])
    batches = rest(spool)
    assert [batch.number for batch in batches] == list(range(1, 201))
    assert all(len(batch.events) == 3 for batch in batches)
    assert not spool.notices(0.0)


def test_of_a_notice_a_minute_none_repeats_what_another_said(tmp_path: Path) -> None:
    clock = Hand()
    spool = Spool(tmp_path, quota_bytes=QUOTA, stopwatch=clock)
    for _ in range(400):
        write(spool, [log()])
    [first] = spool.notices(1.0)
    assert isinstance(first, TelemetryDropped)
    for _ in range(400):
        write(spool, [log()])
    assert not spool.notices(2.0)
    clock.seconds = NOTICE_SECONDS
    [second] = spool.notices(3.0)
    assert isinstance(second, TelemetryDropped)
    assert not spool.notices(4.0, is_last=True)
    stored = sum(len(batch.events) for batch in rest(spool))
    assert first.counts["log_lines"] + second.counts["log_lines"] + stored == 800


def test_the_batch_that_may_have_arrived_already_is_never_changed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    write(spool, [log("on its way")])
    body = spool.peek()
    for _ in range(400):
        write(spool, [log()])
    assert spool.peek() == body


def test_a_disk_that_has_room_again_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spool = Spool(tmp_path, quota_bytes=QUOTA * 100)
    for number in (2, 3):  # these two files take nothing
        (tmp_path / f"{number:010d}.jsonl").symlink_to("/dev/full")
    write(spool, [log("x" * 200_000)])  # fills its segment
    for number in (2, 3, 4):
        write(spool, [status(number)])
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "0000000001.jsonl",
        "0000000004.jsonl",
    ]
    assert [batch.number for batch in rest(spool)] == [1, 2, 3, 4]
    told = [message.partition(",")[0] for message in caplog.messages]
    assert told == [
        "the spool of the run's events",
        "the spool of the run's events can be written again",
    ]


def test_in_memory_the_same_policy_holds_and_the_notice_names_the_disk(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("in the way")
    spool = Spool(tmp_path / "spool", quota_bytes=QUOTA * 100, memory_quota_bytes=QUOTA)
    for number in range(400):
        write(spool, [log(), status(number)])
    [notice] = spool.notices(0.0)
    assert isinstance(notice, TelemetryDropped)
    assert notice.cause == "disk"
    events = [event for batch in rest(spool) for event in batch.events]
    assert [e for e in events if isinstance(e, StatusLogged)] == [status(n) for n in range(400)]
    assert len(events) == 400 + 400 - notice.counts["log_lines"]


def test_what_is_never_dropped_may_exceed_the_quota_and_all_else_has_no_room_until_it_went(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    for number in range(400):
        write(spool, [status(number), log()])
    assert on_disk(tmp_path) > QUOTA
    assert len(list(tmp_path.iterdir())) < 100  # and not a file for each batch
    events = [event for batch in rest(spool) for event in batch.events]
    assert [e for e in events if isinstance(e, StatusLogged)] == [status(n) for n in range(400)]
    write(spool, [log("there is room")])
    assert take(spool).events == (log("there is room"),)
    assert on_disk(tmp_path) <= QUOTA


def test_a_segment_that_cannot_be_read_costs_its_events_and_no_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path, quota_bytes=QUOTA)
    write(spool, [status(1)])
    for file in tmp_path.iterdir():
        file.unlink()
    [batch] = rest(spool)
    assert batch.number == 1
    [event] = batch.events
    assert isinstance(event, LogLogged)
    assert "cannot be read from the spool" in event.lines[0]


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["write", "take"]), max_size=300), st.integers(1, 40))
def test_whatever_comes_in_between_run_events_and_the_ledger_arrive_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str], lines: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, quota_bytes=QUOTA)
    taken: list[EventBatch] = []
    num_lines = 0
    for number, move in enumerate(moves):
        if move == "write":
            write(spool, [*[log()] * lines, status(number), step(number)])
            num_lines += lines
        elif spool.num_sent < spool.num_written:
            taken.append(take(spool))
    taken += rest(spool)
    events = [event for batch in taken for event in batch.events]
    written = [number for number, move in enumerate(moves) if move == "write"]
    assert [batch.number for batch in taken] == list(range(1, len(written) + 1))
    assert [e for e in events if isinstance(e, StatusLogged)] == [status(n) for n in written]
    steps = [e for e in events if isinstance(e, StepLogged)]
    ledger = [p.value for e in steps for p in e.points if p.name == LEDGER_ISSUED.name]
    assert ledger == written
    notices = [e for e in spool.notices(0.0, is_last=True) if isinstance(e, TelemetryDropped)]
    dropped = sum(notice.counts.get("log_lines", 0) for notice in notices)
    assert dropped + sum(isinstance(e, LogLogged) for e in events) == num_lines


class Life(RuleBasedStateMachine):
    """Batches come and go; the files never take more than the quota while they can be reduced."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lagoon-spool-"))
        self.spool = Spool(self.folder, quota_bytes=QUOTA)

    @rule(size=st.integers(0, 3000))
    def written(self, size: int) -> None:
        write(self.spool, [log("x" * size)])

    @precondition(lambda self: self.spool.num_sent < self.spool.num_written)
    @rule()
    def taken(self) -> None:
        take(self.spool)

    @invariant()
    def fits(self) -> None:
        assert on_disk(self.folder) <= QUOTA + 3200  # and the batch that is on its way
        assert self.spool.num_bytes == on_disk(self.folder)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=20, stateful_step_count=60)
