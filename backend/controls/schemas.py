"""Bodies and answers about changes of running runs."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt

Value = StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)] | None
State = Literal["pending", "applied", "superseded", "refused", "never"]
"""``never``: its run finished without it."""


class ChangeBody(BaseModel):
    """What is to be changed, together."""

    model_config = ConfigDict(extra="forbid")

    settings: Annotated[dict[str, Value], Field(max_length=100)]
    """Values by dotted path, as ``rollout.max_concurrent``; ``paused`` is true or false."""


class ChangeOut(BaseModel):
    """A change, and what became of it."""

    number: int
    requested_at: datetime
    requested_by: str
    before: dict[str, Value]
    after: dict[str, Value]
    words: str
    """What was changed, for people."""
    state: State
    why: str
    attempt: int | None
    version: int | None
    """Policy version from whose next batch on it holds."""
    applied_at: datetime | None


class Controls(BaseModel):
    """What may be changed of a run while it goes on, and what was."""

    values: dict[str, Value]
    """The settings as they are wanted now, the pause (``paused``) among them."""
    changes: list[ChangeOut]
    """Oldest first."""
