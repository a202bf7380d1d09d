"""Answers about ingested events."""

from pydantic import BaseModel

from lagoon.controls import Change


class Stored(BaseModel):
    """How far the writer's batches are stored."""

    accepted_number: int


class Accepted(Stored):
    """The same, and what people want of the run."""

    stop_requested: bool
    """Whether it is to stop."""
    changes: list[Change]
    """Changes of its settings that the driver has not said anything of yet."""
