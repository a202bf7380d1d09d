"""The four things a chart's horizontal axis can count."""

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from dashboard.watch import Curve


class Axis(StrEnum):
    """What the horizontal axis counts."""

    STEP = "step"
    TRAJECTORIES = "trajectories"
    TIME = "time"
    TOKENS = "tokens"

    @property
    def caption(self) -> str:
        """The axis' label."""
        return {
            Axis.STEP: "step",
            Axis.TRAJECTORIES: "trajectories trained on",
            Axis.TIME: "minutes since the start",
            Axis.TOKENS: "tokens sampled",
        }[self]

    @property
    def choice(self) -> str:
        """The name in the switch."""
        return {
            Axis.STEP: "Step",
            Axis.TRAJECTORIES: "Trajectories",
            Axis.TIME: "Wall-clock",
            Axis.TOKENS: "Tokens",
        }[self]


class Ruler:
    """Where a step of one run lies on an axis.

    Tokens and trajectories are known at the steps that reported them and interpolated between;
    a run that has not reported any is drawn over steps.
    """

    def __init__(self, axis: Axis, progress: Curve | None, origin: float | None) -> None:
        self.axis = axis
        self._origin = origin
        self._known: tuple[list[float], list[float]] | None = None
        if axis in (Axis.TRAJECTORIES, Axis.TOKENS) and progress and progress.values:
            steps = [step for step in progress.steps if math.isfinite(progress.values[step])]
            if steps:
                counts = [progress.values[step] for step in steps]
                # Step 0 is the policy before any training: nothing was consumed yet.
                if steps[0] > 0:
                    steps, counts = [0, *steps], [0.0, *counts]
                self._known = ([float(step) for step in steps], counts)

    @property
    def title(self) -> str:
        """The label of the axis that is really drawn."""
        if self.axis in (Axis.TRAJECTORIES, Axis.TOKENS) and self._known is None:
            return Axis.STEP.caption
        return self.axis.caption

    def place(self, curve: Curve) -> list[float]:
        """The axis values of a curve's steps."""
        if self.axis is Axis.TIME and self._origin is not None:
            return [(at - self._origin) / 60 for at in _times(curve)]
        return self.place_steps(curve.steps)

    def place_moment(self, step: int, at: float) -> float:
        """The axis value of something that happened at a step, at a moment (Unix seconds)."""
        if self.axis is Axis.TIME and self._origin is not None:
            return (at - self._origin) / 60
        return self.place_steps([step])[0]

    def place_steps(self, steps: Sequence[int]) -> list[float]:
        """The axis values of steps without a time of their own."""
        if self._known is None:
            return [float(step) for step in steps]
        return [float(x) for x in np.interp(steps, *self._known)]


def _times(curve: Curve) -> list[float]:
    """The time of each step; a step that came without one takes its predecessor's."""
    times: list[float] = []
    for step in curve.steps:
        at = curve.times.get(step, math.nan)
        times.append(at if math.isfinite(at) or not times else times[-1])
    return times
