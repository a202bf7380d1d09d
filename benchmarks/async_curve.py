"""A training run as the study of asynchronous methods looks at it: success over time and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from benchmarks.frame import machine, versions
from benchmarks.study import points, step_ends
from lagoon import metrics as m

SMOOTHED = 2
"""Evaluations in a row whose mean counts as having reached a level: one alone may be luck, and who
is evaluated more often has more of it."""
NUM_LAGS = 20
"""Of a run's steps about so many are kept with their lag."""

Axis = Literal["step", "seconds", "wall_seconds"]
Line = Sequence[tuple[float, float]]
"""Points of a line, from left to right."""


class Evaluation(NamedTuple):
    """One look at the policy of a step."""

    step: int
    seconds: float
    """Training seconds until its weights were published."""
    success: float
    wall_seconds: float = float("nan")
    """Seconds since training began, with all waits and writes; not kept of older runs."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a run's events say, as far as arms are compared by it."""

    evaluations: tuple[Evaluation, ...]
    steps: int
    seconds: float
    """Training seconds, those of waiting for an evaluation left out."""
    staleness: float
    """Mean over all steps of the mean staleness of trained tokens, in policy versions."""
    staleness_curve: tuple[tuple[int, float], ...]
    """Step, mean staleness of the tokens that it trained on, at some steps."""
    num_dropped: int
    """Prompts that were dropped."""
    masked: float
    """Mean share of trained tokens that the correction gave weight 0."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Curve:
        """From a kept result."""
        values = {name: row[name] for name in cls.__slots__ if not isinstance(row[name], list)}
        return cls(
            evaluations=tuple(Evaluation(*each) for each in row["evaluations"]),
            staleness_curve=tuple(
                (1 + index * stride(row["steps"]), lag)
                for index, lag in enumerate(row["staleness_curve"])
            ),
            **values,
        )

    @property
    def first(self) -> float:
        """Success before training."""
        return self.evaluations[0].success

    @property
    def at_end(self) -> float:
        """Mean success of the last evaluations."""
        return self.smoothed("step")[-1][1]

    @property
    def best(self) -> float:
        """The best mean of evaluations in a row."""
        return max(value for _, value in self.smoothed("step"))

    @property
    def lowest_after_best(self) -> float:
        """The lowest mean of evaluations in a row after the best one."""
        values = [value for _, value in self.smoothed("step")]
        return min(values[values.index(max(values)) :])

    def end(self, axis: Axis) -> float:
        """Where the run's last evaluation is."""
        return float(getattr(self.evaluations[-1], axis))

    def at(self, axis: Axis, place: float) -> float:
        """Smoothed success there, on a straight line between evaluations.

        Raises ``ValueError`` when the run ended before.
        """
        if place > self.end(axis):
            raise ValueError(f"a run ended at {self.end(axis):g} {axis}, before {place:g}")
        return on_line(self.smoothed(axis), place)

    def reaches(self, axis: Axis, level: float) -> float | None:
        """Where smoothed success first has that level; None when it never has."""
        line = self.smoothed(axis)
        if line[0][1] >= level:
            return line[0][0]
        for (start, before), (end, after) in pairwise(line):
            if after >= level:
                return start + (end - start) * (level - before) / (after - before)
        return None

    def smoothed(self, axis: Axis) -> list[tuple[float, float]]:
        """Every evaluation's place with the mean of it and the one before."""
        successes = [each.success for each in self.evaluations]
        found = []
        for index, each in enumerate(self.evaluations):
            some = successes[max(0, index + 1 - SMOOTHED) : index + 1]
            found.append((float(getattr(each, axis)), sum(some) / len(some)))
        return found


def on_line(line: Line, place: float) -> float:
    """The height of a line there; beyond its ends that of the end."""
    if place <= line[0][0]:
        return line[0][1]
    for (start, before), (end, after) in pairwise(line):
        if place <= end:
            return before + (after - before) * (place - start) / (end - start)
    return line[-1][1]


def summary(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What of a run's events is kept."""
    seconds, walls = trained_seconds(events), wall_seconds(events)
    lags = [value for _, value in points(events, m.STALENESS_TOTAL.name)]
    masked = [value for _, value in points(events, m.MASKED.name)]
    return {
        "evaluations": [
            (step, round(seconds[step], 1), value, round(walls[step], 1))
            for step, value in points(events, m.HELDOUT_SUCCESS.name)
        ],
        "steps": max(seconds),
        "seconds": round(seconds[max(seconds)], 1),
        "staleness": round(sum(lags) / len(lags), 2),
        "staleness_curve": [round(lag, 2) for lag in lags[:: stride(len(lags))]],
        "num_dropped": int(sum(_at_last_step(events, m.LEDGER_DROPPED.name))),
        "masked": round(sum(masked) / len(masked), 4) if masked else 0.0,
        "num_tasks": int(points(events, m.HELDOUT_TASKS.name)[0][1]),
        "versions": versions(),
        "machine": machine(),
    }


def stride(steps: int) -> int:
    """Every how many steps the lag of one is kept."""
    return max(1, steps // NUM_LAGS)


def trained_seconds(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Training seconds until the weights of each step were published."""
    waits = dict(points(events, m.EVALUATION_WAIT_SECONDS.name))
    found, total = {0: 0.0}, 0.0
    for step, seconds in points(events, m.STEP_SECONDS.name):
        total += seconds - waits.get(step, 0.0)
        found[step] = total
    return found


def wall_seconds(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Seconds from the start of the first step to the end of each, with whatever lay between."""
    ended, lasted = step_ends(events), dict(points(events, m.STEP_SECONDS.name))
    first = min(ended)
    started = ended[first] - lasted[first]
    return {0: 0.0} | {step: at - started for step, at in ended.items()}


def _at_last_step(events: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    found = points(events, name)
    return [value for step, value in found if step == found[-1][0]]
