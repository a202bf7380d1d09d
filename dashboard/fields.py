"""A run's JSON schema as the fields of a form, and values of those fields as a configuration.

Nothing is drawn here. Field paths are dotted (``method.group_size``), as in the API's errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dashboard.records import Config, Schema
from dashboard.words import title_of

Kind = Literal["integer", "number", "boolean", "choice", "text", "json", "fixed"]
Values = dict[str, Any]
"""A value for each field, by path."""

CHOSEN = ("method", "environment")
"""Sections whose fields depend on which method or environment is chosen."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One setting."""

    path: str
    label: str
    help: str
    kind: Kind
    default: Any
    is_nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class FormSection:
    """Settings that belong together."""

    name: str
    title: str
    help: str
    fields: tuple[FormField, ...]


def sections(
    schema: Schema, chosen: Mapping[str, str], without: Iterable[str] = ()
) -> list[FormSection]:
    """The form for a chosen method and environment, in the schema's order.

    Sections named in ``without`` are left out (a method without gradients has no trainer). The
    settings of a run that stand in no section come last, as a section of their own.
    """
    found, loose = [], []
    for name, node in schema["properties"].items():
        if name in without:
            continue
        model = _model(schema, node, chosen.get(name))
        if model is None:
            loose.append(_field(schema, name, node))
            continue
        fields = tuple(
            _field(schema, f"{name}.{key}", part) for key, part in model["properties"].items()
        )
        about = node.get("description") or model.get("description", "")
        if name in CHOSEN:
            about = model.get("description", "")
        found.append(FormSection(name, title_of(name), clean(about), fields))
    found.append(FormSection("", "This run", "", tuple(loose)))
    return found


def values_of(form: Sequence[FormSection], config: Config) -> Values:
    """What the form shows for ``config``; defaults where it says nothing."""
    return {
        field.path: _read(config, field.path, field.default)
        for section in form
        for field in section.fields
    }


def config_of(form: Sequence[FormSection], values: Values, extras: Config | None = None) -> Config:
    """The configuration that the form stands for, with ``extras`` it cannot show."""
    config: Config = {}
    for section in form:
        for field in section.fields:
            _write(config, field.path, values[field.path])
    return _merged(config, extras or {})


def extras_of(form: Sequence[FormSection], config: Config) -> Config:
    """The keys of ``config`` that the form has no field for, nested as they were."""
    known = {field.path for section in form for field in section.fields}
    names = {path.split(".")[0] for path in known if "." in path}
    extras: Config = {}
    for key, value in config.items():
        if key in names and isinstance(value, dict):
            rest = {part: v for part, v in value.items() if f"{key}.{part}" not in known}
            if rest:
                extras[key] = rest
        elif key not in known and key not in names and value is not None:
            extras[key] = value
    return extras


def misfits(form: Sequence[FormSection], config: Config) -> list[str]:
    """Paths whose value no widget could show: the wrong type, or out of bounds."""
    values = values_of(form, config)
    wrong = [
        field.path
        for section in form
        for field in section.fields
        if not _fits(field, values[field.path])
    ]
    nested = {s.name for s in form if s.name}
    wrong += [n for n in nested if config.get(n) is not None and not isinstance(config[n], dict)]
    return wrong


def _fits(field: FormField, value: Any) -> bool:
    if value is None:
        return field.is_nullable
    if field.kind in ("integer", "number"):
        return _is_number_within(field, value)
    if field.kind == "boolean":
        return isinstance(value, bool)
    if field.kind in ("choice", "fixed"):
        return value in field.choices
    return isinstance(value, str) if field.kind == "text" else True


def _is_number_within(field: FormField, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if field.kind == "integer" and not isinstance(value, int):
        return False
    low = -math.inf if field.minimum is None else field.minimum
    high = math.inf if field.maximum is None else field.maximum
    return low <= value <= high


def _model(schema: Schema, node: Schema, chosen: str | None) -> Schema | None:
    """The object schema that ``node`` stands for, or None when it is a plain value."""
    if "discriminator" in node:
        reference = node["discriminator"]["mapping"].get(chosen)
        return _resolve(schema, reference) if reference else None
    for option in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
        if "$ref" in option:
            model = _resolve(schema, option["$ref"])
            if "properties" in model:
                return model
    return None


def _resolve(schema: Schema, reference: str) -> Schema:
    found: Schema = schema["$defs"][reference.rsplit("/", 1)[-1]]
    return found


def _field(schema: Schema, path: str, node: Schema) -> FormField:
    options = [option for option in node.get("anyOf", [node]) if option.get("type") != "null"]
    core = {**node, **options[0]} if options else node
    kind, choices = _kind(core)
    return FormField(
        path=path,
        label=title_of(path.split(".")[-1]),
        help=clean(node.get("description", "")),
        kind=kind,
        default=node.get("default", _implied_default(core, choices)),
        is_nullable=len(options) < len(node.get("anyOf", [node])),
        minimum=core.get("minimum", core.get("exclusiveMinimum")),
        maximum=_maximum(core),
        choices=choices,
    )


def _implied_default(core: Schema, choices: Sequence[Any]) -> Any:
    """A default that the schema does not spell out: an empty container, or the only choice."""
    empty: dict[str, Any] = {"object": {}, "array": []}
    return choices[0] if choices else empty.get(core.get("type", ""))


def _maximum(core: Schema) -> float | None:
    below = core.get("exclusiveMaximum")
    if below is not None and core.get("type") == "integer":
        return float(below) - 1
    return core.get("maximum", below)


def _kind(core: Schema) -> tuple[Kind, tuple[Any, ...]]:
    if "const" in core:
        return "fixed", (core["const"],)
    if "enum" in core:
        return "choice", tuple(core["enum"])
    kinds: dict[str, Kind] = {
        "integer": "integer",
        "number": "number",
        "boolean": "boolean",
        "string": "text",
    }
    return kinds.get(core.get("type", ""), "json"), ()


def _read(config: Config, path: str, default: Any) -> Any:
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return default
        value = value[part]
    return value


def _write(config: Config, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    place = config
    for part in parents:
        place = place.setdefault(part, {})
    place[last] = value


def _merged(config: Config, extras: Config) -> Config:
    merged = dict(config)
    for key, value in extras.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = {**below, **value}
        else:
            merged[key] = value
    return merged


def clean(text: str) -> str:
    """A docstring as running text: single line breaks are only the source's line length."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(part for part in paragraphs if part).replace("``", "`")
