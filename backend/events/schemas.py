"""Answers about ingested events."""

from pydantic import BaseModel


class Stored(BaseModel):
    """How far the writer's batches are stored."""

    accepted_number: int


class Accepted(Stored):
    """The same, and whether the run is to stop."""

    stop_requested: bool
