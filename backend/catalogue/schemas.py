"""Answers about what can be run."""

from typing import Any

from pydantic import BaseModel, Field


class _Described(BaseModel):
    name: str
    title: str
    help: str
    json_schema: dict[str, Any] = Field(serialization_alias="schema")


class MethodOut(_Described):
    """A method."""

    paper: str
    family: str


class EnvironmentOut(_Described):
    """An environment."""

    missing: str
    """The package that it needs and that is not installed beside the API; empty as a rule."""


class MetricOut(BaseModel):
    """A metric."""

    name: str
    unit: str
    description: str
    kind: str
    panel: str


class ModelOut(BaseModel):
    """A built-in model."""

    path: str
    title: str
    help: str


class CatalogueOut(BaseModel):
    """Everything that a run can be made of, and everything it can report."""

    methods: list[MethodOut]
    environments: list[EnvironmentOut]
    metrics: list[MetricOut]
    models: list[ModelOut]


class PresetOut(BaseModel):
    """A run configuration to start from."""

    name: str
    title: str
    description: str
    yaml: str
    config: dict[str, Any]
