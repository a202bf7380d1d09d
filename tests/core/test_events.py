import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lagoon.events import EventBatch, HistogramLogged, StepLogged
from lagoon.metrics import CATALOGUE, LOSS, Metric
from lagoon.points import Point


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_float_survives_json_exactly(value: float) -> None:
    sent = StepLogged(at=0.0, step=1, points=(Point(name=LOSS.name, value=value),))
    batch = EventBatch(writer="driver", number=1, events=(sent,))
    back = EventBatch.model_validate_json(batch.model_dump_json()).events[0]
    assert isinstance(back, StepLogged)
    received = back.points[0].value
    if math.isnan(value):
        assert math.isnan(received)
    else:
        assert struct.pack("d", received) == struct.pack("d", value)


def test_a_metric_outside_the_catalogue_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="stalenes/mean"):
        Point(name="stalenes/mean", value=1.0)
    with pytest.raises(ValidationError, match="trainer/loss"):
        HistogramLogged(at=0.0, step=0, name="trainer/loss", counts={})


def test_a_metric_cannot_be_declared_twice_or_without_a_panel() -> None:
    with pytest.raises(ValueError, match="twice"):
        Metric("trainer/loss", "loss", "again")
    with pytest.raises(ValueError, match="panel/quantity"):
        Metric("loss", "loss", "no panel")


def test_every_metric_has_a_unit_and_a_description() -> None:
    for metric in CATALOGUE.values():
        assert metric.unit
        assert metric.description.endswith(".")
