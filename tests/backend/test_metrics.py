"""What a driver reports is what a reader gets: exact, thinned honestly, and only what is new."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections import Counter
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.metrics.lineage import FOREVER, Span, surviving
from backend.models import MetricLatest
from lagoon.points import NON_FINITE, encode_float
from tests.backend.api import Api, ended, read_run, send, step

NAME = "reward/mean"


async def read(user: httpx.AsyncClient, run_id: str, **parameters: Any) -> dict[str, Any]:
    answer = await user.get(f"/runs/{run_id}/metrics", params={"name": [NAME], **parameters})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def decoded(value: Any) -> float:
    return NON_FINITE[value] if isinstance(value, str) else float(value)


def same(left: float, right: float) -> bool:
    """Equal bit for bit, up to the payload of a NaN."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(width=64), min_size=1, max_size=200))
async def test_any_float64_comes_back_as_it_was(api: Api, values: list[float]) -> None:
    user = await api.user(f"user {uuid.uuid4()}")
    run_id, driver = await api.started(user)
    events = [step(number, reward__mean=encode_float(value)) for number, value in enumerate(values)]
    await send(driver, run_id, api.batch([*events, ended("finished")], number=1))
    await api.gone(run_id)
    [series] = (await read(user, run_id))["series"]
    back = [decoded(value) for value in series["points"]["value"]]
    assert len(back) == len(values)
    assert all(same(left, right) for left, right in zip(values, back, strict=True))
    nan_steps = [number for number, value in enumerate(values) if math.isnan(value)]
    assert series["nan_steps"] == nan_steps
    [listed] = (await user.get(f"/runs/{run_id}/series")).json()["items"]
    assert same(decoded(listed["first_value"]), values[0])
    assert same(decoded(listed["last_value"]), values[-1])
    assert listed["count"] == len(values)
    numbers = [value for value in values if not math.isnan(value)]
    extremes = [None if each is None else decoded(each) for each in (listed["min"], listed["max"])]
    assert extremes == [min(numbers, default=None), max(numbers, default=None)]
    first_nan = (await read_run(user, run_id))["first_nan"]
    assert first_nan == ({"name": NAME, "step": nan_steps[0]} if nan_steps else None)


async def test_the_first_weights_that_did_not_arrive_are_named(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([step(n, sync__mismatched_engines=0) for n in (1, 2)]))
    assert (await read_run(ada, run_id))["first_mismatch"] is None
    counts = {3: 0, 4: 2, 5: 0, 6: 1}
    steps = [step(n, sync__mismatched_engines=count) for n, count in counts.items()]
    await send(driver, run_id, api.batch(steps))
    assert (await read_run(ada, run_id))["first_mismatch"] == {"attempt": 1, "step": 4}


async def test_values_are_strings_only_where_json_has_no_number(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    values = ["NaN", "Infinity", "-Infinity", -0.0, 5e-324, 1.7976931348623157e308, 0.1]
    await send(driver, run_id, api.batch([step(n, reward__mean=v) for n, v in enumerate(values)]))
    answer = await ada.get(f"/runs/{run_id}/metrics", params={"name": NAME})
    assert "NaN" not in answer.text.replace('"NaN"', "")
    [series] = json.loads(answer.text)["series"]
    assert [repr(value) for value in series["points"]["value"]] == [repr(v) for v in values]


async def test_a_spike_survives_thinning_and_the_answer_says_that_it_is_thinned(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    generator = random.Random(7)
    values = [generator.gauss(0, 1) for _ in range(5000)]
    values[1234], values[4321] = 1e6, -1e6
    for start in range(0, 5000, 2500):
        events = [step(n, reward__mean=values[n]) for n in range(start, start + 2500)]
        await send(driver, run_id, api.batch(events))
    [series] = (await read(ada, run_id, max_points=100))["series"]
    points = series["points"]
    assert series["method"] == "minmax"
    assert series["n_total"] == 5000
    assert series["n_shown"] == len(points["step"]) == len(points["value"]) == len(points["at"])
    assert 50 <= series["n_shown"] <= 100
    assert points["step"] == sorted(points["step"])
    assert all(values[n] == value for n, value in zip(points["step"], points["value"], strict=True))
    assert {0, 1234, 4321, 4999} <= set(points["step"])
    assert len((await read(ada, run_id, max_points=5000))["series"][0]["points"]["step"]) == 5000


async def test_thinning_agrees_with_a_longhand_loop(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    generator = random.Random(11)
    steps = sorted(generator.sample(range(100_000), 600))
    choices = [math.nan, math.inf, -math.inf, 0.0, 1.0, 2.5, -3.25]
    values = [generator.choice(choices) for _ in steps]
    events = [step(n, reward__mean=encode_float(v)) for n, v in zip(steps, values, strict=True)]
    await send(driver, run_id, api.batch(events))
    [series] = (await read(ada, run_id, max_points=40))["series"]

    buckets: dict[int, list[tuple[int, float]]] = {}
    low, width = steps[0], steps[-1] - steps[0] + 1
    for number, value in zip(steps, values, strict=True):
        buckets.setdefault((number - low) * 10 // width, []).append((number, value))
    expected: set[tuple[int, float]] = set()
    nan_steps = []
    for bucket in buckets.values():
        nan_steps += [n for n, v in bucket if math.isnan(v)][:1]
        numbers = [(n, v) for n, v in bucket if not math.isnan(v)]
        if numbers:
            smallest = min(numbers, key=lambda each: (each[1], each[0]))
            largest = max(numbers, key=lambda each: (each[1], -each[0]))
            expected |= {numbers[0], numbers[-1], smallest, largest}
    shown = zip(series["points"]["step"], series["points"]["value"], strict=True)
    assert [(n, decoded(v)) for n, v in shown] == sorted(expected)
    assert series["nan_steps"] == nan_steps


async def test_a_cursor_brings_only_what_is_new(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([step(1, reward__mean=1.0, trainer__loss=3.0)]))
    first = await read(ada, run_id)
    assert (await read(ada, run_id, after=first["cursor"]))["series"] == []
    await send(driver, run_id, api.batch([step(3, reward__mean=3.0), step(2, reward__mean=2.0)]))
    await send(driver, run_id, api.batch([step(4, trainer__loss=2.0)]))
    news = await read(ada, run_id, after=first["cursor"])
    [series] = news["series"]
    assert series["points"]["step"] == [2, 3]
    assert series["n_total"] == 2
    assert (await read(ada, run_id, after=news["cursor"]))["series"] == []


async def test_the_last_steps_of_a_long_series_are_read_without_thinning(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    events = [step(n, reward__mean=float(n % 7)) for n in range(1, 501)]
    await send(driver, run_id, api.batch(events))
    [series] = (await read(ada, run_id, max_points=20, from_step=491))["series"]
    assert series["method"] == "all"
    assert series["n_total"] == series["n_shown"] == 10
    assert series["points"]["step"] == list(range(491, 501))
    assert series["points"]["value"] == [n % 7 for n in range(491, 501)]
    [thinned] = (await read(ada, run_id, max_points=20, from_step=401))["series"]
    assert (thinned["method"], thinned["n_total"]) == ("minmax", 100)
    assert min(thinned["points"]["step"]) == 401
    [none] = (await read(ada, run_id, from_step=501))["series"]
    assert none["points"]["step"] == []


async def test_labels_make_series_of_their_own(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    points = [
        {"name": "es/fitness", "value": value, "labels": {"stat": stat}}
        for stat, value in (("mean", 0.5), ("max", 0.9), ("最小", 0.1))
    ]
    event = {"type": "step", "at": 1.9e9, "step": 1, "points": points}
    await send(driver, run_id, api.batch([event]))
    answer = await ada.get(f"/runs/{run_id}/metrics", params={"name": "es/fitness"})
    found = {
        series["labels"]["stat"]: series["points"]["value"] for series in answer.json()["series"]
    }
    assert found == {"mean": [0.5], "max": [0.9], "最小": [0.1]}
    assert (await read_run(ada, run_id))["last_reward"] == 0.5


async def test_times_come_back_in_utc(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    await send(driver, run_id, api.batch([step(1, at=1_900_000_000.25, reward__mean=1.0)]))
    [series] = (await read(ada, run_id))["series"]
    assert series["points"]["at"] == ["2030-03-17T17:46:40.250000Z"]


async def test_the_latest_values_follow_steps_not_arrival(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    for number, value in ((5, 0.5), (2, 0.2), (9, 0.9), (7, 0.7)):
        await send(driver, run_id, api.batch([step(number, heldout__success=value)]))
    run = await read_run(ada, run_id)
    assert run["first_heldout_success"] == 0.2
    assert run["last_heldout_success"] == 0.9
    [listed] = (await ada.get(f"/runs/{run_id}/series")).json()["items"]
    assert (listed["count"], listed["last_step"]) == (4, 9)


async def test_histograms_are_exact_over_steps_and_in_all(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    generator = random.Random(3)
    sent = [
        {generator.randrange(-3, 40): generator.randrange(2**40) for _ in range(5)}
        for _ in range(37)
    ]
    events = [
        {
            "type": "histogram",
            "at": 1.9e9,
            "step": number,
            "name": "staleness/total_tokens",
            "counts": counts,
        }
        for number, counts in enumerate(sent)
    ]
    await send(driver, run_id, api.batch(events))
    path = f"/runs/{run_id}/histograms"
    parameters: dict[str, Any] = {"name": "staleness/total_tokens"}
    whole = (await ada.get(path, params=parameters)).json()
    total: Counter[int] = Counter()
    for item, counts in zip(whole["items"], sent, strict=True):
        assert {int(value): count for value, count in item["counts"].items()} == counts
        total.update(counts)
    assert {int(k): v for k, v in whole["total"]["counts"].items()} == dict(total)
    assert [int(k) for k in whole["total"]["counts"]] == sorted(total)

    thin = (await ada.get(path, params={**parameters, "max_steps": 5})).json()
    assert len(thin["items"]) == 5
    assert thin["total"] == whole["total"]
    for item in thin["items"]:
        expected: Counter[int] = Counter()
        for counts in sent[item["first_step"] : item["step"] + 1]:
            expected.update(counts)
        assert {int(k): v for k, v in item["counts"].items()} == dict(expected)

    part = (await ada.get(path, params={**parameters, "from_step": 3, "to_step": 4})).json()
    assert [item["step"] for item in part["items"]] == [3, 4]
    none = (await ada.get(path, params={"name": "staleness/waiting_tokens"})).json()
    assert none["items"] == []
    assert none["total"] == {"counts": {}}


def latest(attempt: int, first_step: int) -> MetricLatest:
    return MetricLatest(attempt=attempt, first_step=first_step)


def test_the_newest_attempt_that_covers_a_step_is_shown() -> None:
    assert surviving([latest(1, 0)], {}) == [Span(1, FOREVER)]
    assert surviving([latest(1, 0), latest(2, 50)], {}) == [Span(1, 50), Span(2, FOREVER)]
    assert surviving([latest(3, 20), latest(1, 0), latest(2, 50)], {}) == [
        Span(1, 20),
        Span(3, FOREVER),
    ]
    assert surviving([], {}) == []
    # An attempt that went on from step 30 supersedes what it has not reported yet.
    assert surviving([latest(1, 0)], {2: 30}) == [Span(1, 31)]
    assert surviving([latest(1, 0), latest(2, 50)], {2: 30, 3: 0}) == [Span(1, 1)]


async def test_a_resumed_attempt_replaces_the_steps_it_repeats(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    counts = {"type": "histogram", "at": 1.9e9, "name": "staleness/total_tokens"}
    events = [step(n, reward__mean=float(n)) for n in range(6)]
    events += [{**counts, "step": n, "counts": {"1": 1}} for n in range(6)]
    await send(driver, run_id, api.batch(events))
    async with api.context.database.session() as session:
        connection = await session.connection()
        await connection.exec_driver_sql(
            "insert into metric_points select series_id, 2, step, at, value + 100, cursor + 1 "
            "from metric_points where step >= 4"
        )
        await connection.exec_driver_sql(
            "insert into metric_latest select series_id, 2, 2, 4, 104, 5, 105, 104, 105, null, "
            "cursor + 1 from metric_latest"
        )
        await connection.exec_driver_sql(
            "insert into histograms select series_id, 2, step, at, cursor + 1, array[9], counts "
            "from histograms where step >= 4"
        )
        await connection.exec_driver_sql("update runs set cursor = cursor + 1")
        await session.commit()
    [series] = (await read(ada, run_id))["series"]
    assert series["points"]["value"] == [0, 1, 2, 3, 104, 105]
    answer = await ada.get(f"/runs/{run_id}/histograms", params={"name": "staleness/total_tokens"})
    assert answer.json()["total"]["counts"] == {"1": 4, "9": 2}
