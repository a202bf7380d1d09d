"""A metric's value, and numbers that survive JSON as they are."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

from lagoon.metrics import CATALOGUE, Metric

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_float(value: float) -> float | str:
    """The value itself, or its name when it is NaN or infinite."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _decode_float(value: Any) -> Any:
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


ExactFloat = Annotated[
    float, BeforeValidator(_decode_float), PlainSerializer(encode_float, when_used="json")
]
"""A float64 that survives JSON, NaN and infinities included."""


class Point(BaseModel):
    """One metric's value. Its step is the event's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: ExactFloat
    labels: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in CATALOGUE:
            raise ValueError(f"no metric {name!r} in the catalogue")
        return name


def point(metric: Metric, value: float, **labels: str) -> Point:
    """A metric's value with its labels."""
    return Point(name=metric.name, value=value, labels=labels)
