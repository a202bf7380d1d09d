"""The catalogue over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
from typing import Any

from fastapi import APIRouter, Request

from backend.accounts.access import Person
from backend.catalogue.presets import presets
from backend.catalogue.schemas import (
    CatalogueOut,
    EnvironmentOut,
    MethodOut,
    MetricOut,
    ModelOut,
    PresetOut,
)
from backend.dependencies import ContextOf
from backend.paging import Page
from lagoon.config import RunConfig
from lagoon.environments import ENVIRONMENTS, EnvironmentConfig
from lagoon.methods import METHODS
from lagoon.metrics import CATALOGUE
from lagoon.models import MODELS

router = APIRouter(tags=["catalogue"])


@router.get("/schemas/run-config")
async def read_run_config_schema(person: Person) -> dict[str, Any]:
    """The JSON schema of a run configuration; descriptions are help texts."""
    return RunConfig.model_json_schema()


@router.get("/catalogue")
async def read_catalogue(person: Person) -> CatalogueOut:
    """Methods, environments, models and metrics."""
    return CatalogueOut(
        methods=[
            MethodOut(
                **_described(method), title=method.title, paper=method.paper, family=method.family
            )
            for method in METHODS
        ],
        environments=[
            EnvironmentOut(
                **_described(environment), title=environment.title, missing=_missing(environment)
            )
            for environment in ENVIRONMENTS
        ],
        metrics=[
            MetricOut.model_validate(metric, from_attributes=True) for metric in CATALOGUE.values()
        ],
        models=[ModelOut(path=each.name, title=each.title, help=each.help) for each in MODELS],
    )


def _described(section: type[Any]) -> dict[str, Any]:
    return {
        "name": section.model_fields["name"].default,
        "help": inspect.getdoc(section) or "",
        "json_schema": section.model_json_schema(),
    }


def _missing(environment: type[EnvironmentConfig]) -> str:
    """What is said of an environment whose package is not here; runs may find it elsewhere."""
    package = environment.extra_package
    if package is None or importlib.util.find_spec(package) is not None:
        return ""
    return (
        f"Its package {package} is not installed here. Install it with: {environment.extra_command}"
    )


@router.get("/presets")
async def list_presets(person: Person, context: ContextOf) -> Page[PresetOut]:
    """Run configurations to start from."""
    return Page(items=await asyncio.to_thread(presets, context.settings.presets_dir))


@router.get("/openapi.json")
async def read_openapi(person: Person, request: Request) -> dict[str, Any]:
    """The description of this API."""
    schema: dict[str, Any] = request.app.openapi()
    return schema
