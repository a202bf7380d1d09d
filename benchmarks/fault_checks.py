"""What must hold of a run when it is over, however often it was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cli.client import Api
from cli.home import Home
from lagoon.metrics import CATALOGUE, LEDGER_TRAINED
from lagoon.spools import spool_of

MAX_POINTS = 100_000
Key = tuple[str, tuple[tuple[str, str], ...]]
Points = dict[Key, dict[int, Any]]


def differences(api: Api, home: Home, run: dict[str, Any]) -> list[str]:
    """What the platform shows of a run against what its drivers wrote; empty when all is there."""
    expected = _surviving(home, run)
    shown = _shown(api, run["id"], {name for name, _ in expected})
    found = []
    for key, points in expected.items():
        there = shown.get(key, {})
        lost = sorted(points.keys() - there.keys())
        more = sorted(there.keys() - points.keys())
        other = sorted(s for s in points.keys() & there.keys() if points[s] != there[s])
        if lost or more or other:
            found.append(f"{key[0]}: lost {lost}, doubled or foreign {more}, changed {other}")
    return found


def num_points(home: Home, run: dict[str, Any]) -> int:
    """Points on the run's surviving lineage."""
    return sum(len(points) for points in _surviving(home, run).values())


def prompt_faults(api: Api, run: dict[str, Any], prompts_per_step: int) -> list[int]:
    """Steps before which another number of prompts was trained on than that many a step."""
    series = api.get(f"/runs/{run['id']}/metrics", name=LEDGER_TRAINED.name, max_points=MAX_POINTS)
    [line] = series["series"] or [{"points": {"step": [], "value": []}}]
    steps, values = line["points"]["step"], line["points"]["value"]
    wrong = [s for s, v in zip(steps, values, strict=True) if v != (s - 1) * prompts_per_step]
    return wrong + sorted(set(range(1, run["step"] + 1)) - set(steps))


def _surviving(home: Home, run: dict[str, Any]) -> Points:
    """By metric and labels, the value at each step that no later attempt has superseded.

    What a killed driver had written and not sent is among it: the workers deliver it. Not so the
    points of an attempt that ended before it was known where it began: nobody can have gone on from
    them.
    """
    found: Points = {}
    for attempt in run["attempts"]:
        begins = attempt["resumed_step"]
        if begins is None and attempt["number"] > 1:
            continue
        if begins is not None:
            for points in found.values():
                for step in [step for step in points if step > begins]:
                    del points[step]
        for event in events_of(home, f"{run['id']}-a{attempt['number']}"):
            if event["type"] != "step":
                continue
            for point in event["points"]:
                if CATALOGUE[point["name"]].kind == "histogram":
                    continue
                key = (point["name"], tuple(sorted(point.get("labels", {}).items())))
                found.setdefault(key, {})[event["step"]] = point["value"]
    return found


def events_of(home: Home, attempt_id: str) -> Iterator[dict[str, Any]]:
    """The events in an attempt's spool, in order; its quota is far above what these runs write."""
    for segment in sorted(spool_of(home.root, attempt_id).glob("*.jsonl")):
        for line in segment.read_text(encoding="utf-8").splitlines():
            try:
                yield from json.loads(line)["events"]
            except ValueError:
                return  # the line that a kill cut short


def _shown(api: Api, run_id: str, names: set[str]) -> Points:
    found: Points = {}
    wanted = sorted(names)
    for start in range(0, len(wanted), 50):
        page = api.get(
            f"/runs/{run_id}/metrics", name=wanted[start : start + 50], max_points=MAX_POINTS
        )
        for line in page["series"]:
            key = (line["name"], tuple(sorted(line["labels"].items())))
            points = zip(line["points"]["step"], line["points"]["value"], strict=True)
            found[key] = dict(points)
    return found
