"""The base of everything a user writes: frozen, no unknown keys, help text from docstrings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a run's configuration."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )
