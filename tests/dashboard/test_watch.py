import math
from typing import Any

from dashboard.client import Api
from dashboard.watch import Curve, RunWatch
from lagoon.metrics import HELDOUT_SUCCESS, LOSS, REWARD_MEAN
from tests.dashboard.fake_api import TOKEN, FakeApi


def series(values: dict[int, float | str], **changes: Any) -> Any:
    found = {
        "name": LOSS.name,
        "labels": {},
        "n_total": len(values),
        "n_shown": len(values),
        "method": "all",
        "nan_steps": [],
        "points": {
            "step": list(values),
            "value": list(values.values()),
            "at": [f"2026-08-03T09:30:{step:02d}Z" for step in values],
        },
    }
    return found | changes


def watching(fake: FakeApi, run_id: str = "r7k2m9qd") -> tuple[RunWatch, Api]:
    api = Api(fake.client(), TOKEN)
    watch = RunWatch(run_id)
    watch.refresh(api)
    return watch, api


def metric_requests(fake: FakeApi) -> list[dict[str, str]]:
    return [dict(r.url.params) for r in fake.requests if r.url.path.endswith("/metrics")]


def test_new_points_are_added_and_a_repeated_step_is_replaced() -> None:
    curve = Curve(LOSS.name, {})
    curve.add(series({1: 0.5, 2: 0.4}), is_delta=False)
    curve.add(series({2: 0.3, 3: 0.2}), is_delta=True)
    assert curve.values == {1: 0.5, 2: 0.3, 3: 0.2}
    assert curve.last() == 0.2


def test_values_that_are_not_finite_arrive_as_such() -> None:
    curve = Curve(LOSS.name, {})
    curve.add(series({1: "NaN", 2: "Infinity", 3: "-Infinity"}), is_delta=False)
    assert math.isnan(curve.values[1])
    assert curve.values[2] == math.inf
    assert curve.values[3] == -math.inf


def test_nan_steps_that_a_thinned_series_lists_apart_are_drawn_too() -> None:
    curve = Curve(LOSS.name, {})
    curve.add(series({1: 0.5, 9: 0.1}, method="minmax", nan_steps=[4]), is_delta=False)
    assert curve.steps == [1, 4, 9]
    assert math.isnan(curve.values[4])
    assert curve.is_thinned


def test_a_tick_without_news_asks_for_no_points() -> None:
    fake = FakeApi()
    watch, api = watching(fake)
    watch.curves(api, [REWARD_MEAN, LOSS])
    watch.refresh(api)
    watch.curves(api, [REWARD_MEAN])
    watch.curves(api, [LOSS])
    assert len(metric_requests(fake)) == 1


def test_a_tick_with_news_asks_only_for_what_came_after() -> None:
    fake = FakeApi()
    watch, api = watching(fake)
    before = watch.curves(api, [REWARD_MEAN, LOSS])
    fake.runs["r7k2m9qd"] = {**fake.runs["r7k2m9qd"], "cursor": 641}
    watch.refresh(api)
    after = watch.curves(api, [REWARD_MEAN, LOSS])
    first, second = metric_requests(fake)
    assert "after" not in first
    assert second["after"] == "640"
    assert [c.values for c in after] == [c.values for c in before]


def test_a_new_attempt_supersedes_what_was_read() -> None:
    fake = FakeApi()
    watch, api = watching(fake)
    watch.curves(api, [REWARD_MEAN])
    run = fake.runs["r7k2m9qd"]
    fake.runs["r7k2m9qd"] = {**run, "cursor": 700, "attempts": run["attempts"] * 2}
    watch.refresh(api)
    watch.curves(api, [REWARD_MEAN])
    assert "after" not in metric_requests(fake)[-1]


def test_an_answer_is_kept_until_the_run_moves_on() -> None:
    fake = FakeApi()
    watch, api = watching(fake)
    reads: list[int] = []
    for _ in range(3):
        watch.kept("page", lambda: reads.append(1))
    assert len(reads) == 1
    fake.runs["r7k2m9qd"] = {**fake.runs["r7k2m9qd"], "cursor": 641}
    watch.refresh(api)
    watch.kept("page", lambda: reads.append(1))
    assert len(reads) == 2


def test_what_is_kept_is_bounded() -> None:
    watch, _ = watching(FakeApi())
    reads: list[int] = []

    def read(n: int) -> int:
        reads.append(n)
        return n

    for n in range(200):
        watch.kept(f"page {n}", lambda n=n: read(n))  # type: ignore[misc]
    watch.kept("page 199", lambda: read(199))
    assert reads.count(199) == 1
    watch.kept("page 0", lambda: read(0))
    assert reads.count(0) == 2


def test_a_metric_that_was_never_reported_has_no_curve() -> None:
    watch, api = watching(FakeApi(), "r9q4w1zz")
    assert watch.curve(api, HELDOUT_SUCCESS) is None
