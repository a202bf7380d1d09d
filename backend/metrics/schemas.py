"""Answers about series, points, histograms and trajectories."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from lagoon.points import ExactFloat
from lagoon.trajectory import Split


class SeriesOut(BaseModel):
    """A series, without its points."""

    id: int
    name: str
    labels: dict[str, str]
    kind: Literal["scalar", "histogram"]
    count: int
    last_step: int | None = None
    last_value: ExactFloat | None = None
    first_value: ExactFloat | None = None
    min: ExactFloat | None = None
    max: ExactFloat | None = None
    first_nan_step: int | None = None


class Points(BaseModel):
    """Values by position; steps rise."""

    step: list[int]
    value: list[ExactFloat]
    at: list[datetime]


class SeriesPoints(BaseModel):
    """A series as a chart draws it."""

    name: str
    labels: dict[str, str]
    n_total: int
    """Points that were reported (after the cursor and from the step on that were asked for)."""
    n_shown: int
    method: Literal["all", "minmax"]
    """"minmax": the first, last, smallest and largest point of each bucket of steps."""
    nan_steps: list[int]
    """Steps whose value is NaN; under "minmax" the first one of each bucket."""
    points: Points


class MetricsOut(BaseModel):
    """Series, and the cursor to ask for what comes after them."""

    cursor: int
    series: list[SeriesPoints]


class HistogramStep(BaseModel):
    """Exact counts of the steps from ``first_step`` to ``step``."""

    step: int
    first_step: int
    counts: dict[str, int]


class HistogramTotal(BaseModel):
    """Exact counts over all steps asked for."""

    counts: dict[str, int]


class HistogramsOut(BaseModel):
    """A histogram over steps and in all."""

    cursor: int
    items: list[HistogramStep]
    total: HistogramTotal


class TurnOut(BaseModel):
    """One message of a trajectory."""

    role: str
    text: str
    seconds: ExactFloat
    error: str | None


class TrajectoryOut(BaseModel):
    """One episode, readable."""

    trajectory_id: str
    step: int
    prompt_id: str
    split: Split
    reward: ExactFloat
    success: bool
    num_tokens: int
    first_version: int | None
    completed_version: int
    truncated: bool
    seconds: ExactFloat
    turns: list[TurnOut]
