"""Bodies and answers about experiments."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from backend.runs.schemas import RunSummary
from backend.text import LongText, Name


class NewExperiment(BaseModel):
    """An experiment to make."""

    model_config = ConfigDict(extra="forbid")

    title: Name
    notes: LongText = ""


class ExperimentChange(BaseModel):
    """What to change of an experiment; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    title: Name | None = None
    notes: LongText | None = None


class ExperimentOut(BaseModel):
    """An experiment in a list."""

    id: str
    title: str
    notes: str
    owner: str
    created_at: datetime
    num_runs: int


class ExperimentDetail(ExperimentOut):
    """An experiment with its newest runs."""

    runs: list[RunSummary]
