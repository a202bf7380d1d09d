"""A training run as the study of asynchronous methods looks at it: success over time and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.frame import versions
from benchmarks.study import points
from lagoon import metrics as m

SMOOTHED = 2
"""Evaluations in a row whose mean counts as having reached a level: one alone may be luck, and who
is evaluated more often has more of it."""
NUM_LAGS = 20
"""Of a run's steps about so many are kept with their lag."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a run's events say, as far as arms are compared by it."""

    evaluations: tuple[tuple[int, float, float], ...]
    """Step, training seconds until its weights were published, success."""
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
            evaluations=tuple((step, at, value) for step, at, value in row["evaluations"]),
            staleness_curve=tuple(
                (1 + index * stride(row["steps"]), lag)
                for index, lag in enumerate(row["staleness_curve"])
            ),
            **values,
        )

    @property
    def first(self) -> float:
        """Success before training."""
        return self.evaluations[0][2]

    @property
    def at_end(self) -> float:
        """Mean success of the last evaluations."""
        last = self.evaluations[-SMOOTHED:]
        return sum(success for _, _, success in last) / len(last)

    @property
    def best(self) -> float:
        """The best mean of evaluations in a row."""
        return max(value for _, _, value in self._smoothed())

    def at_seconds(self, limit: float) -> float:
        """Success of the last evaluations until then."""
        return self._last([(at, value) for _, at, value in self._smoothed()], limit)

    def after(self, steps: int) -> float:
        """Success of the last evaluations until then."""
        return self._last([(step, value) for step, _, value in self._smoothed()], steps)

    def seconds_to(self, level: float) -> float | None:
        """Seconds until evaluations in a row had that mean; None when they never had."""
        return next((at for _, at, value in self._smoothed() if value >= level), None)

    def _smoothed(self) -> list[tuple[int, float, float]]:
        found = []
        for end in range(1, len(self.evaluations) + 1):
            some = self.evaluations[max(0, end - SMOOTHED) : end]
            step, at, _ = self.evaluations[end - 1]
            found.append((step, at, sum(value for _, _, value in some) / len(some)))
        return found

    def _last(self, pairs: Sequence[tuple[float, float]], limit: float) -> float:
        return [value for at, value in pairs if at <= limit or at == 0][-1]


def summary(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What of a run's events is kept."""
    seconds = trained_seconds(events)
    lags = [value for _, value in points(events, m.STALENESS_TOTAL.name)]
    masked = [value for _, value in points(events, m.MASKED.name)]
    return {
        "evaluations": [
            (step, round(seconds[step], 1), value)
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


def _at_last_step(events: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    found = points(events, name)
    return [value for step, value in found if step == found[-1][0]]
