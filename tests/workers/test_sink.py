import json
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from lagoon.controls import Change
from lagoon.events import (
    MAX_BATCH_PARTS,
    MAX_PARTS,
    EventBatch,
    LogLogged,
    StatusLogged,
    TelemetryDropped,
    num_parts,
)
from workers.reporting import SinkHandler
from workers.sink import JsonlSink, PlatformSink


def line(number: int) -> LogLogged:
    return LogLogged(at=float(number), lines=(f"line {number}",))


class Api:
    """Keeps accepted batches; ``answers`` decides what each attempt to send gets."""

    def __init__(self, answer: Callable[[int], httpx.Response]) -> None:
        self.batches: list[EventBatch] = []
        self.num_requests = 0
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.num_requests += 1
        response = self._answer(self.num_requests)
        if response.status_code == 202:
            self.batches.append(EventBatch.model_validate_json(request.content))
        return response

    def lines(self) -> list[str]:
        events = [event for batch in self.batches for event in batch.events]
        return [text for event in events if isinstance(event, LogLogged) for text in event.lines]


def accepted(stop: bool = False) -> httpx.Response:
    return httpx.Response(202, json={"stop_requested": stop})


def sink_to(
    api: Api,
    folder: Path,
    on_stop: Callable[[], None] = lambda: None,
    drain_seconds: float = 5,
    on_fenced: Callable[[], None] | None = None,
) -> PlatformSink:
    client = httpx.Client(transport=httpx.MockTransport(api), base_url="http://api")
    return PlatformSink(
        client,
        "r1-a1",
        folder / "spool",
        on_stop,
        on_fenced=on_fenced,
        period_seconds=0.01,
        drain_seconds=drain_seconds,
    )


def test_every_event_arrives_once_in_order_in_numbered_batches(tmp_path: Path) -> None:
    api = Api(lambda _: accepted())
    sink = sink_to(api, tmp_path)
    for number in range(2500):
        sink.log(line(number))
    assert sink.close()
    assert api.lines() == [f"line {number}" for number in range(2500)]
    assert [batch.number for batch in api.batches] == list(range(1, len(api.batches) + 1))


def test_an_api_that_fails_for_a_while_loses_nothing(tmp_path: Path) -> None:
    api = Api(lambda count: accepted() if count > 3 else httpx.Response(503))
    sink = sink_to(api, tmp_path)
    sink.log(line(1))
    assert sink.close()
    assert api.lines() == ["line 1"]
    assert api.num_requests == 4


def test_what_could_not_be_sent_stays_in_the_spool(tmp_path: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    client = httpx.Client(transport=httpx.MockTransport(refuse), base_url="http://api")
    spool = tmp_path / "spool"
    sink = PlatformSink(client, "r1-a1", spool, lambda: None, period_seconds=0, drain_seconds=0)
    sink.flush()  # with nothing before it
    sink.log(line(7))
    sink.flush()
    assert any(file.stat().st_size for file in spool.glob("*.jsonl"))
    assert not sink.close()
    [segment] = spool.glob("*.jsonl")
    assert json.loads(segment.read_text().splitlines()[0])["events"][0]["lines"] == ["line 7"]


def test_a_stop_request_in_an_answer_reaches_the_driver(tmp_path: Path) -> None:
    asked = threading.Event()
    sink = sink_to(Api(lambda _: accepted(stop=True)), tmp_path, asked.set)
    sink.log(line(1))
    assert asked.wait(5)
    sink.close()


def test_changed_settings_in_an_answer_reach_the_driver(tmp_path: Path) -> None:
    heard = threading.Event()
    got: list[Change] = []
    wanted = {"number": 2, "settings": {"method.gamma": 1.5, "paused": True}}
    answer = httpx.Response(202, json={"stop_requested": False, "changes": [wanted]})
    client = httpx.Client(transport=httpx.MockTransport(lambda _: answer), base_url="http://api")

    def on_changes(changes: Sequence[Change]) -> None:
        got.extend(changes)
        heard.set()

    spool = tmp_path / "spool"
    sink = PlatformSink(client, "r1-a1", spool, lambda: None, on_changes=on_changes)
    sink.log(line(1))
    assert heard.wait(5)
    assert sink.close()
    assert got[0] == Change.model_validate(wanted)


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_a_driver_that_was_replaced_is_fenced_out_which_is_not_a_stop(
    tmp_path: Path, status: int
) -> None:
    asked, fenced = threading.Event(), threading.Event()
    problem = {"type": "urn:lagoon:problem:fenced-out"}
    api = Api(lambda _: httpx.Response(status, json=problem))
    sink = sink_to(api, tmp_path, asked.set, on_fenced=fenced.set)
    sink.log(line(1))
    assert fenced.wait(5)
    assert not sink.close()
    assert not asked.is_set()
    assert api.num_requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="<h1>Not Found</h1>"),
        httpx.Response(403, text="a proxy that is being configured"),
        httpx.Response(409, json={"type": "urn:lagoon:problem:changed-meanwhile"}),
    ],
)
def test_who_says_nothing_about_the_attempt_fences_nobody_out(
    tmp_path: Path, answer: httpx.Response
) -> None:
    fenced = threading.Event()
    api = Api(lambda number: answer if number == 1 else accepted())
    sink = sink_to(api, tmp_path, on_fenced=fenced.set)
    sink.log(line(1))
    assert sink.close()
    assert api.lines()[0] == "line 1"
    assert not fenced.is_set()


def test_without_a_platform_events_are_lines_of_a_file(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "out" / "events.jsonl")
    sink.log(line(1))
    sink.log(line(2))
    assert sink.close()
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    assert [json.loads(text)["type"] for text in lines] == ["log", "log"]


def test_without_a_platform_a_full_disk_costs_events_and_never_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path)
    path.unlink()
    path.symlink_to("/dev/full")
    sink.log(line(1))
    sink.log(line(2))
    path.unlink()
    sink.log(line(3))
    assert not sink.close()
    assert [json.loads(text)["lines"] for text in path.read_text().splitlines()] == [["line 3"]]
    (said,) = caplog.messages
    assert "training goes on" in said


def test_a_refused_batch_becomes_a_line_that_says_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    asked = threading.Event()
    api = Api(lambda count: httpx.Response(422, text="no") if count == 1 else accepted())
    sink = sink_to(api, tmp_path, asked.set)
    sink.log(line(1))
    assert sink.close()
    assert [batch.number for batch in api.batches] == [1]
    assert "1 events were refused" in api.lines()[0]
    assert not asked.is_set()


def test_a_batch_that_would_be_too_large_is_split(tmp_path: Path) -> None:
    api = Api(lambda _: accepted())
    sink = sink_to(api, tmp_path)
    for number in range(10):
        sink.log(LogLogged(at=float(number), lines=("x" * 1_000_000,)))
    assert sink.close()
    assert len(api.lines()) == 10
    assert len(api.batches) >= 3
    assert [batch.number for batch in api.batches] == list(range(1, len(api.batches) + 1))


def test_a_batch_that_would_hold_too_many_lines_is_split(tmp_path: Path) -> None:
    api = Api(lambda _: accepted())
    sink = sink_to(api, tmp_path)
    for number in range(12):
        sink.log(LogLogged(at=float(number), lines=("x",) * MAX_PARTS))
    assert sink.close()
    assert len(api.lines()) == 12 * MAX_PARTS
    assert all(num_parts(batch.events) <= MAX_BATCH_PARTS for batch in api.batches)


def test_a_record_of_very_many_lines_becomes_several_events(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "events.jsonl")
    text = "\n".join(["x"] * (MAX_PARTS + 1))
    SinkHandler(sink).emit(logging.LogRecord("x", logging.INFO, __file__, 1, text, None, None))
    sink.close()
    logged = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["lines"]) for line in logged] == [MAX_PARTS, 1]


def waiting(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("events wait")]


def test_a_refused_replacement_waits_for_its_turn_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api(lambda _: httpx.Response(422, text="no"))
    sink = sink_to(api, tmp_path, drain_seconds=0.5)
    sink.log(line(1))
    assert not sink.close()
    assert api.num_requests <= 4  # one, its replacement, and that again after 0.25 s and 0.5 s
    assert waiting(caplog) == ["events wait in the spool: 422 no"]


def test_an_answer_that_is_not_the_apis_is_no_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = [
        httpx.Response(202, text="<html>"),
        httpx.Response(202, json=[]),
        httpx.Response(200, text="welcome"),
    ]
    api = Api(lambda count: strange[count - 1] if count <= 3 else accepted())
    sink = sink_to(api, tmp_path)
    sink.log(line(1))
    assert sink.close()
    assert api.num_requests == 4
    assert waiting(caplog) == [
        "events wait in the spool: not the API's: 202 <html>",
        "events wait in the spool: 200 welcome",
    ]


def test_a_disk_that_takes_nothing_is_said_once_and_loses_nothing_while_the_api_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spool").write_text("a file, where a folder is wanted")
    api = Api(lambda _: accepted())
    sink = sink_to(api, tmp_path)
    for number in range(3):
        sink.log(line(number))
    assert sink.close()
    assert api.lines() == ["line 0", "line 1", "line 2"]
    (said,) = caplog.messages
    assert "events are kept in memory" in said
    assert "training goes on" in said


def test_an_api_that_is_away_past_the_quota_gets_all_run_events_and_a_notice(
    tmp_path: Path,
) -> None:
    is_back = threading.Event()
    api = Api(lambda _: accepted() if is_back.is_set() else httpx.Response(503))
    client = httpx.Client(transport=httpx.MockTransport(api), base_url="http://api")
    sink = PlatformSink(
        client,
        "r1-a1",
        tmp_path / "spool",
        lambda: None,
        period_seconds=0,
        drain_seconds=10,
        quota_bytes=20_000,
    )
    for number in range(400):
        sink.log(line(number))
        sink.log(StatusLogged(at=0, phase="running", message=f"phase {number}"))
    is_back.set()
    assert sink.close()
    events = [event for batch in api.batches for event in batch.events]
    phases = [event.message for event in events if isinstance(event, StatusLogged)]
    notices = [event for event in events if isinstance(event, TelemetryDropped)]
    assert phases == [f"phase {number}" for number in range(400)]
    assert [batch.number for batch in api.batches] == list(range(1, len(api.batches) + 1))
    dropped = sum(notice.counts["log_lines"] for notice in notices)
    assert len(api.lines()) + dropped == 400
