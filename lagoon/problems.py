"""A validation error in words: which field, what is wrong, and the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

ON_PURPOSE = dict.fromkeys(
    ("top_p", "top_k", "min_p"),
    "it would draw from another distribution than the policy's, whose log-probabilities the "
    "trainer computes and every correction divides by",
)
"""Settings that people may look for and that there are not, and why."""


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
        if item["type"] == "extra_forbidden" and owner is not None:
            others = _owners(path[-1], item["loc"][:-1], model)
            problems.append(_unknown_key(path, list(owner.model_fields), others))
        elif item["type"] == "union_tag_invalid" and owner is not None:
            problems.append(_unknown_name(path, str(item["ctx"]["tag"]), _names(path, owner)))
        elif item["type"] == "union_tag_not_found" and owner is not None:
            known = ", ".join(_names(path, owner))
            message = f"name is missing: it says which {path[-1]}; known: {known}"
            problems.append(FieldProblem((f"{'.'.join(path)}.name",), message))
        else:
            problems.append(FieldProblem((".".join(path),), item["msg"]))
    return problems


def _unknown_key(path: list[str], known: list[str], others: list[str]) -> FieldProblem:
    if others:
        section = ".".join(path[:-1])
        message = f"{path[-1]} is a setting of {' and '.join(others)} alone"
        return FieldProblem((".".join(path), f"{section}.name"), message)
    if path[-1] in ON_PURPOSE:
        return FieldProblem((".".join(path),), f"there is no {path[-1]}: {ON_PURPOSE[path[-1]]}")
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    hint = ".".join([*path[:-1], near[0]]) if near else None
    advice = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return FieldProblem((".".join(path),), f"unknown key {path[-1]!r}; {advice}", hint)


def _unknown_name(path: list[str], name: str, known: list[str]) -> FieldProblem:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    message = f"no {path[-1]} is called {name!r}; {advice}"
    return FieldProblem((f"{'.'.join(path)}.name",), message, near[0] if near else None)


def _owners(key: str, location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """The names of the other choices for the section at ``location`` that have such a key."""
    path, owner = _resolve(location, model)
    if owner is None or not path or path[-1] not in owner.model_fields:
        return []
    choices = _models(owner.model_fields[path[-1]].annotation)
    return [str(_tag(choice)) for choice in choices if key in choice.model_fields]


def _names(path: list[str], owner: type[BaseModel]) -> list[str]:
    """The names that the section at ``path``, a field of ``owner``, may have."""
    choices = _models(owner.model_fields[path[-1]].annotation)
    return [str(_tag(choice)) for choice in choices]


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
