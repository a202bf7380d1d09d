"""A validation error in words: which field, what is wrong, and the nearest valid name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field."""

    fields: tuple[str, ...]
    """Dotted paths: one, or the ones that clash."""
    message: str
    hint: str | None = None
    """The nearest valid name, when the field is unknown."""


def field_problems(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """The problems of a failed validation of ``model``."""
    problems: list[FieldProblem] = []
    for item in error.errors(include_url=False):
        if item["type"] == "clash":
            problems += [
                FieldProblem(tuple(fields), message) for fields, message in item["ctx"]["clashes"]
            ]
            continue
        path, owner = _resolve(item["loc"], model)
        message, hint = item["msg"], None
        if item["type"] == "extra_forbidden" and owner is not None:
            near = difflib.get_close_matches(path[-1], list(owner.model_fields), n=1, cutoff=0.5)
            hint = ".".join([*path[:-1], near[0]]) if near else None
            message = f"unknown key {path[-1]!r}"
            message += (
                f"; did you mean {near[0]!r}?"
                if near
                else (f"; known keys: {', '.join(owner.model_fields)}")
            )
        if item["type"] == "union_tag_invalid":
            known = re.findall(r"'([^']+)'", item["ctx"]["expected_tags"])
            near = difflib.get_close_matches(str(item["ctx"]["tag"]), known, n=1, cutoff=0.5)
            path, hint = [*path, "name"], near[0] if near else None
            message = f"no {path[-2]} is called {item['ctx']['tag']!r}"
            message += f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
        problems.append(FieldProblem((".".join(path),), message, hint))
    return problems


def _resolve(
    location: Sequence[int | str], model: type[BaseModel]
) -> tuple[list[str], type[BaseModel] | None]:
    """The dotted path of an error, without union tags, and the model that owns its last part."""
    path: list[str] = []
    owner: type[BaseModel] | None = model
    choices: list[type[BaseModel]] = []
    current: type[BaseModel] | None = model
    for part in location:
        tagged = [c for c in choices if _tag(c) == part]
        if tagged:
            current, choices = tagged[0], []
            continue
        path.append(str(part))
        owner = current
        field = current.model_fields.get(str(part)) if current else None
        choices = _models(field.annotation) if field else []
        current = choices[0] if len(choices) == 1 else None
    return path, owner


def _tag(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("name")
    return field.default if field else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
