"""A run as one document, whole as far as the API gives it; where it does not, the document says so.

::

    run, series ─▶ metrics (by name) ─▶ histograms (by windows of steps) ─▶ events
                ─▶ log (by line number) ─▶ trajectories (by cursor)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cli.client import Api

MAX_POINTS = 100_000
"""Points of one series that the API gives at most."""
LOG_LINES = 5000
"""Lines of the log that the API gives at once."""
HISTOGRAM_STEPS = 2000
"""Steps of a histogram that the API gives one by one; of more it gives sums over ranges."""


def exported(api: Api, run_id: str, max_points: int = MAX_POINTS) -> dict[str, Any]:
    """A run's detail with its metrics, histograms, events, log and trajectories.

    ``truncated`` names what is not whole: metrics of more than ``max_points`` points, which the
    API thins, the oldest events of a very long history, and under ``missing`` what retention
    removed and the driver dropped. It is empty when all is there.
    """
    run = api.get(f"/runs/{run_id}")
    series = api.get(f"/runs/{run_id}/series")["items"]
    metrics: list[Any] = []
    for name in sorted({item["name"] for item in series if item.get("kind") != "histogram"}):
        answer = api.get(f"/runs/{run_id}/metrics", name=name, max_points=max_points)
        metrics += answer["series"]
    events = api.get(f"/runs/{run_id}/events")["items"]
    return {
        "run": run,
        "truncated": _truncated(run, metrics, events),
        "metrics": metrics,
        "histograms": {
            name: list(_histogram(api, run_id, name, last_step))
            for name, last_step in _histograms_of(series).items()
        },
        "events": events,
        "log": list(_log(api, run_id)),
        "trajectories": list(api.pages(f"/runs/{run_id}/trajectories")),
    }


def _truncated(run: dict[str, Any], metrics: list[Any], events: list[Any]) -> dict[str, Any]:
    """What of the document is not whole, by its part."""
    parts: dict[str, Any] = {}
    thinned = [
        {name: each[name] for name in ("name", "labels", "n_total", "n_shown")}
        for each in metrics
        if each["method"] != "all"
    ]
    if thinned:
        parts["metrics"] = thinned
    if run["missing"]:
        parts["missing"] = run["missing"]
    if events and events[0]["n"] > 1:  # numbered from 1
        parts["events"] = {"n_total": events[-1]["n"], "n_shown": len(events)}
    return parts


def _histograms_of(series: list[Any]) -> dict[str, int]:
    """Each histogram's name and the last step that any of its series has."""
    last_steps: dict[str, int] = {}
    for item in series:
        if item.get("kind") == "histogram":
            last = max(last_steps.get(item["name"], 0), item.get("last_step") or 0)
            last_steps[item["name"]] = last
    return dict(sorted(last_steps.items()))


def _histogram(api: Api, run_id: str, name: str, last_step: int) -> Iterator[Any]:
    """Every step's own counts: in windows so short that the API adds no two steps up."""
    for first in range(0, last_step + 1, HISTOGRAM_STEPS):
        window = api.get(
            f"/runs/{run_id}/histograms",
            name=name,
            from_step=first,
            to_step=first + HISTOGRAM_STEPS - 1,
            max_steps=HISTOGRAM_STEPS,
        )
        yield from window["items"]


def _log(api: Api, run_id: str) -> Iterator[Any]:
    """Every line, from the first."""
    after = 0
    while True:
        page = api.get(f"/runs/{run_id}/log", after=after, limit=LOG_LINES)
        yield from page["items"]
        if len(page["items"]) < LOG_LINES:
            return
        after = page["next_after"]
