"""From the submission of a run to its first trained step, as the API shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.client import Api
from cli.processes import wait_until
from lagoon.metrics import LOSS
from lagoon.status import RunStatus

LIMIT_SECONDS = 300.0
PRESET = "grpo-calculator"
POLL_SECONDS = 0.5
"""How often the API is asked. Asking every 50 ms cost 4 CPU-seconds of the start it measures."""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One submission."""

    seconds: float
    """Until the first trained step could be read."""
    phases: Mapping[str, float]
    """Seconds after the submission at which each entry of the run's history was made, by its
    words, in order."""


def submit(
    api: Api, config: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
) -> FirstStep:
    """Submit a run, wait for its first trained step, then stop it and wait for its end.

    Raises ``RuntimeError`` when the run ends, or takes too long, before it has trained.
    """
    started = clock()
    run_id = api.post("/runs", {"name": "quickstart", "config": config})["id"]
    ended: list[str] = []

    def trained_or_ended() -> bool:
        if _has_trained(api, run_id):
            return True
        run = api.get(f"/runs/{run_id}")
        if RunStatus(run["status"]).is_terminal:
            ended.append(f"{run['status']}: {run['reason']}")
        return bool(ended)

    seen = wait_until(trained_or_ended, LIMIT_SECONDS, poll_seconds=POLL_SECONDS)
    seconds = clock() - started
    if ended or not seen:
        raise RuntimeError(f"the run trained no step ({'; '.join(ended) or 'it took too long'})")
    history = phases(api.get(f"/runs/{run_id}/events")["items"])
    api.post(f"/runs/{run_id}/stop")
    wait_until(lambda: _has_ended(api, run_id), LIMIT_SECONDS, poll_seconds=POLL_SECONDS)
    return FirstStep(seconds, history)


def phases(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """When each entry of a run's history was made, in seconds after the first one."""
    ordered = sorted(events, key=lambda event: int(event["n"]))
    if not ordered:
        return {}
    first = datetime.fromisoformat(ordered[0]["at"])
    return {
        _words(event): (datetime.fromisoformat(event["at"]) - first).total_seconds()
        for event in ordered
    }


def _words(event: Mapping[str, Any]) -> str:
    return str(event["reason"] or event["to"] or event["kind"])


def _has_trained(api: Api, run_id: str) -> bool:
    # The newest step of the run would not do: heartbeats name a step before its values are there.
    series = api.get(f"/runs/{run_id}/metrics", name=LOSS.name)["series"]
    return any(line["points"]["step"] for line in series)


def _has_ended(api: Api, run_id: str) -> bool:
    return RunStatus(api.get(f"/runs/{run_id}")["status"]).is_terminal
