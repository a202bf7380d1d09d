"""Events are stored exactly once, whole or not at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from backend.events.metrics import MAX_BATCH_SERIES
from backend.middleware import MAX_BODY_BYTES
from backend.text import MAX_EXCERPT, MAX_SENTENCE
from lagoon.events import MAX_BATCH_EVENTS, MAX_BATCH_PARTS, MAX_PARTS
from tests.backend.api import Api, ended, phase, read_run, send, step


def histogram(number: int, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "histogram",
        "at": 1.9e9,
        "step": number,
        "name": "staleness/total_tokens",
        "counts": counts,
    }


def trajectory(name: str = "t1", **changes: Any) -> dict[str, Any]:
    return {
        "type": "trajectory",
        "at": 1.9e9,
        "step": 1,
        "trajectory_id": name,
        "prompt_id": "p1",
        "split": "train",
        "reward": 1.0,
        "success": True,
        "num_tokens": 12,
        "first_version": 0,
        "completed_version": 1,
        "truncated": False,
        "seconds": 0.5,
        "turns": [
            {"role": "user", "text": "2+3"},
            {"role": "tool", "text": "five", "seconds": 0.1, "error": "timed out"},
        ],
        **changes,
    }


def log(*lines: str) -> dict[str, Any]:
    return {"type": "log", "at": 1.9e9, "lines": list(lines)}


async def everything(user: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    """All that can be read of a run."""
    parts = {
        "run": "",
        "series": "/series",
        "metrics": "/metrics?name=reward/mean&name=heldout/success",
        "histograms": "/histograms?name=staleness/total_tokens",
        "trajectories": "/trajectories",
        "log": "/log",
        "events": "/events",
    }
    read = {}
    for part, path in parts.items():
        answer = await user.get(f"/runs/{run_id}{path}")
        assert answer.status_code == 200, answer.text
        read[part] = answer.json()
    return read


FULL = [
    phase("running", "training"),
    step(1, reward__mean=0.25, heldout__success=0.1),
    histogram(1, {"0": 5, "2": 7}),
    trajectory(),
    log("first line", "second line"),
    {"type": "heartbeat", "at": 1.9e9, "step": 1, "pid": 7, "host": "here"},
    {"type": "checkpoint", "at": 1.9e9, "step": 1, "path": "/weights/1", "is_final": False},
]


async def test_every_kind_of_event_is_stored_and_read(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    answer = await send(driver, run_id, api.batch(FULL))
    assert answer == {"accepted_number": 1, "stop_requested": False, "changes": []}
    read = await everything(ada, run_id)
    assert read["run"]["status"] == "running"
    assert read["run"]["reason"] == "training"
    [saved] = read["run"]["checkpoints"]
    assert (saved["step"], saved["path"], saved["is_final"]) == (1, "/weights/1", False)
    assert read["run"]["attempts"][0]["status"] == "running"
    assert read["histograms"]["items"] == [{"step": 1, "first_step": 1, "counts": {"0": 5, "2": 7}}]
    [one] = read["trajectories"]["items"]
    assert one["turns"][1] == {"role": "tool", "text": "five", "seconds": 0.1, "error": "timed out"}
    lines = [(item["n"], item["line"]) for item in read["log"]["items"]]
    assert lines == [(1, "first line"), (2, "second line")]
    changes = [(e["kind"], e["from"], e["to"], e["by"]) for e in read["events"]["items"]]
    assert changes == [
        ("created", None, "queued", "ada"),
        ("status", "queued", "starting", "scheduler"),
        ("status", "starting", "running", "driver"),
    ]


async def test_weights_that_were_removed_are_not_shown_any_more(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    saved = [
        {"type": "checkpoint", "at": 1.9e9, "step": n, "path": f"/weights/{n}", "is_final": False}
        for n in (1, 2, 3)
    ]
    saved[2]["dropped"] = ["/weights/1"]
    await send(driver, run_id, api.batch(saved))
    shown = (await read_run(ada, run_id))["checkpoints"]
    assert [item["step"] for item in shown] == [2, 3]


async def test_a_batch_sent_twice_changes_nothing(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    batch = api.batch(FULL)
    first = await send(driver, run_id, batch)
    before = await everything(ada, run_id)
    assert await send(driver, run_id, batch) == first
    assert await everything(ada, run_id) == before


async def test_a_batch_sent_many_times_at_once_is_stored_once(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    batch = api.batch([step(1, reward__mean=1.0), log("once")])
    await asyncio.gather(*(send(driver, run_id, batch) for _ in range(6)))
    read = await everything(ada, run_id)
    assert len(read["log"]["items"]) == 1
    assert read["metrics"]["series"][0]["n_total"] == 1


async def test_a_gap_is_refused_with_the_number_expected(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([log("one")]))
    before = await everything(ada, run_id)
    problem = await send(driver, run_id, api.batch([log("three")], number=3), status=409)
    assert problem["expected_number"] == 2
    assert await everything(ada, run_id) == before
    await send(driver, run_id, api.batch([log("two")], number=2))
    await send(driver, run_id, api.batch([log("three")], number=3))


async def test_writers_are_numbered_apart(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    for writer in ("driver", "evaluator", "写"):
        await send(driver, run_id, api.batch([log(writer)], writer=writer))
    lines = (await everything(ada, run_id))["log"]["items"]
    assert [item["line"] for item in lines] == ["driver", "evaluator", "写"]


GOOD_STEP = step(1, reward__mean=1.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"writer": "driver", "number": 1}',
        json.dumps({"writer": "driver", "number": 0, "events": []}).encode(),
        json.dumps({"writer": "", "number": 1, "events": []}).encode(),
        json.dumps({"writer": "driver", "number": 1, "events": [{"type": "mystery"}]}).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, step(2, reward__meen=1.0)]}
        ).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, histogram(1, {"x": 1})]}
        ).encode(),
        json.dumps({"writer": "driver", "number": 1, "events": [GOOD_STEP, step(-1)]}).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP] * (MAX_BATCH_EVENTS + 1)}
        ).encode(),
        b'{"writer": "driver", "number": 1, "events": [{"type":"log","at":1,"lines":["\xff"]}]}',
        b'{"writer": "driver", "number": 1, "events": [{"type": "log", "at": NaN, "lines": []}]}',
        b'{"writer": "driver", "number": 1, "events": [{"type":"log","at":1e300,"lines":[]}]}',
        b'{"writer": "driver", "number": 1, "events": [{"type": "log", "at": -1, "lines": ["a"]}]}',
        json.dumps({"writer": "driver", "number": 2**70, "events": []}).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, step(2**63, reward__mean=1.0)]}
        ).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, histogram(1, {"0": 2**63})]}
        ).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, histogram(1, {str(2**70): 1})]}
        ).encode(),
        json.dumps(
            {"writer": "driver", "number": 1, "events": [GOOD_STEP, trajectory(num_tokens=2**64)]}
        ).encode(),
        json.dumps(
            {
                "writer": "driver",
                "number": 1,
                "events": [
                    {
                        **GOOD_STEP,
                        "points": [
                            {"name": "reward/mean", "value": 1, "labels": {"k": "v" * 5000}}
                        ],
                    }
                ],
            }
        ).encode(),
    ],
)
async def test_a_malformed_batch_stores_nothing_and_spoils_nothing(api: Api, body: bytes) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    before = await everything(ada, run_id)
    answer = await driver.post(f"/attempts/{run_id}-a1/events", content=body)
    assert answer.status_code in (409, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await everything(ada, run_id) == before
    await send(driver, run_id, api.batch([GOOD_STEP]))
    [series] = (await everything(ada, run_id))["metrics"]["series"]
    assert series["points"]["value"] == [1.0]


def labelled(count: int) -> dict[str, Any]:
    """A step with ``count`` points, each of a series of its own."""
    points = [{"name": "es/fitness", "value": 1, "labels": {"n": str(n)}} for n in range(count)]
    return {**step(1), "points": points}


OVER_LIMIT: dict[str, list[dict[str, Any]]] = {
    "lines": [log(*[""] * (MAX_PARTS + 1))],
    "lines over all events": [log(*[""] * MAX_PARTS)] * (MAX_BATCH_PARTS // MAX_PARTS + 1),
    "points": [step(1, reward__mean=1.0) | {"points": GOOD_STEP["points"] * (MAX_PARTS + 1)}],
    "turns": [trajectory(turns=[{"role": "user", "text": ""}] * (MAX_PARTS + 1))],
    "counts": [histogram(1, {str(n): 1 for n in range(MAX_PARTS + 1)})],
    "series": [labelled(MAX_BATCH_SERIES + 1)],
    "series over all events": [labelled(MAX_BATCH_SERIES), step(2, reward__mean=1.0)],
}


@pytest.mark.parametrize("what", OVER_LIMIT)
async def test_a_batch_that_holds_too_much_stores_nothing_and_spoils_nothing(
    api: Api, what: str
) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    before = await everything(ada, run_id)
    await send(driver, run_id, api.batch([GOOD_STEP, *OVER_LIMIT[what]], number=1), status=422)
    assert await everything(ada, run_id) == before
    await send(driver, run_id, api.batch([GOOD_STEP], number=1))


async def test_a_batch_at_its_limits_is_stored(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([labelled(MAX_BATCH_SERIES)]))
    lines = log(*[""] * MAX_PARTS)
    await send(driver, run_id, api.batch([lines] * (MAX_BATCH_PARTS // MAX_PARTS)))
    series = (await ada.get(f"/runs/{run_id}/series")).json()["items"]
    assert len(series) == MAX_BATCH_SERIES
    [last] = (await ada.get(f"/runs/{run_id}/log", params={"limit": 1})).json()["items"]
    assert last["n"] == MAX_BATCH_PARTS


async def test_an_unknown_metric_is_named(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    problem = await send(driver, run_id, api.batch([step(1, reward__meen=1.0)]), status=422)
    [error] = problem["errors"]
    assert "reward/meen" in error["message"]
    assert error["fields"][0].startswith("events.0")


@pytest.mark.parametrize("announced", [True, False])
async def test_an_oversized_batch_is_refused_with_the_limit(api: Api, announced: bool) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    body = json.dumps(api.batch([log("x" * MAX_BODY_BYTES)], number=1)).encode()

    async def pieces() -> Any:
        for start in range(0, len(body), 1 << 20):
            yield body[start : start + (1 << 20)]

    content = body if announced else pieces()
    answer = await driver.post(f"/attempts/{run_id}-a1/events", content=content)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["limit"] == MAX_BODY_BYTES
    await send(driver, run_id, api.batch([log("small")], number=1))
    assert [item["line"] for item in (await everything(ada, run_id))["log"]["items"]] == ["small"]


async def test_nul_characters_in_a_drivers_output_do_not_lose_the_batch(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    turns = [{"role": "assistant", "text": "a\0b"}]
    await send(driver, run_id, api.batch([log("a\0b"), trajectory("t\0", turns=turns)]))
    read = await everything(ada, run_id)
    assert read["log"]["items"][0]["line"] == "a␀b"
    assert read["trajectories"]["items"][0]["turns"][0]["text"] == "a␀b"


async def test_the_driver_learns_of_a_stop_from_any_answer(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    first = api.batch([phase("running")])
    assert not (await send(driver, run_id, first))["stop_requested"]
    await ada.post(f"/runs/{run_id}/stop")
    assert (await send(driver, run_id, first))["stop_requested"]
    assert (await send(driver, run_id, api.batch([])))["stop_requested"]


@pytest.mark.parametrize("outcome", ["finished", "stopped", "failed"])
async def test_the_end_marker_ends_the_run(api: Api, outcome: str) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([phase("running")]))
    api.clock.advance(60)
    marker = ended(outcome, "Because.", "Traceback …" if outcome == "failed" else None)
    await send(driver, run_id, api.batch([marker]))
    run = await read_run(ada, run_id)
    assert run["status"] == outcome
    assert run["reason"] == "Because."
    assert run["ended_at"] == "2030-01-01T12:01:00Z"
    assert run["attempts"][0]["status"] == outcome
    assert run["traceback"] == ("Traceback …" if outcome == "failed" else None)


async def test_of_a_very_long_traceback_and_reason_the_telling_part_is_kept(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([phase("running", "y" * 5000)]))
    assert len((await read_run(ada, run_id))["reason"]) == MAX_SENTENCE
    reason, traceback = "\n" + "x" * 5000 + "\nmore", "a" * 2_000_000 + "ValueError: \0"
    await send(driver, run_id, api.batch([ended("failed", reason, traceback)]))
    run = await read_run(ada, run_id)
    assert run["reason"] == "x" * (MAX_SENTENCE - 1) + "…"
    assert len(run["traceback"]) == MAX_EXCERPT
    assert run["traceback"].endswith("aValueError: ␀")
    await send(driver, run_id, api.batch([ended("failed", "z" * 5000)]))
    assert len((await everything(ada, run_id))["events"]["items"][-1]["reason"]) < 2 * MAX_SENTENCE


async def test_data_that_arrives_after_the_end_is_kept_and_changes_no_status(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([ended("finished", "Done.")]))
    late = api.batch([step(9, reward__mean=0.5), phase("running"), ended("failed", "Too late.")])
    await send(driver, run_id, late)
    read = await everything(ada, run_id)
    assert read["run"]["status"] == "finished"
    assert read["run"]["reason"] == "Done."
    assert read["run"]["traceback"] is None
    assert read["metrics"]["series"][0]["points"]["step"] == [9]
    assert read["events"]["items"][-1]["kind"] == "late"


async def test_the_log_is_read_on_from_where_one_was(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    empty = (await ada.get(f"/runs/{run_id}/log")).json()
    assert empty == {"items": [], "next_after": 0}
    await send(driver, run_id, api.batch([log(*(str(n) for n in range(10)))]))
    tail = (await ada.get(f"/runs/{run_id}/log", params={"limit": 3})).json()
    assert [item["line"] for item in tail["items"]] == ["7", "8", "9"]
    head = (await ada.get(f"/runs/{run_id}/log", params={"after": 0, "limit": 3})).json()
    assert [item["line"] for item in head["items"]] == ["0", "1", "2"]
    assert head["next_after"] == 3
    rest = (await ada.get(f"/runs/{run_id}/log", params={"after": 10})).json()
    assert rest == {"items": [], "next_after": 10}


async def test_trajectories_are_read_newest_first_page_by_page(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    events = [
        trajectory(f"t{n}", split="heldout" if n % 2 else "train", reward="-Infinity")
        for n in range(5)
    ]
    await send(driver, run_id, api.batch(events))
    path = f"/runs/{run_id}/trajectories"
    first = (await ada.get(path, params={"limit": 3})).json()
    second = (await ada.get(path, params={"limit": 3, "cursor": first["next"]})).json()
    names = [each["trajectory_id"] for each in first["items"] + second["items"]]
    assert names == ["t4", "t3", "t2", "t1", "t0"]
    assert second["next"] is None
    assert first["items"][0]["reward"] == "-Infinity"
    heldout = (await ada.get(path, params={"split": "heldout"})).json()
    assert [each["trajectory_id"] for each in heldout["items"]] == ["t3", "t1"]
