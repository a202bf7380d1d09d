"""Answers about ingested events."""

from pydantic import BaseModel


class Accepted(BaseModel):
    """How far the writer's batches are stored, and whether the run is to stop."""

    accepted_number: int
    stop_requested: bool
