"""A run as one document."""

from __future__ import annotations

from typing import Any

from cli.client import Api

MAX_TRAJECTORIES = 200


def exported(api: Api, run_id: str, max_points: int) -> dict[str, Any]:
    """A run's detail with its metrics, histograms, events, log and newest trajectories.

    Metrics with more than ``max_points`` points are thinned as the API does it; each says so in
    ``method``, and how many points there were in ``n_total``.
    """
    run = api.get(f"/runs/{run_id}")
    series = api.get(f"/runs/{run_id}/series")["items"]
    scalars = sorted({item["name"] for item in series if item.get("kind") != "histogram"})
    histograms = sorted({item["name"] for item in series if item.get("kind") == "histogram"})
    metrics: list[Any] = []
    for name in scalars:
        answer = api.get(f"/runs/{run_id}/metrics", name=name, max_points=max_points)
        metrics += answer["series"]
    return {
        "run": run,
        "metrics": metrics,
        "histograms": {
            name: api.get(f"/runs/{run_id}/histograms", name=name)["items"] for name in histograms
        },
        "events": api.get(f"/runs/{run_id}/events")["items"],
        "log": api.get(f"/runs/{run_id}/log")["items"],
        "trajectories": list(api.pages(f"/runs/{run_id}/trajectories", MAX_TRAJECTORIES)),
    }
