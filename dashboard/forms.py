"""Fields as widgets: each with its help, and with what is wrong with it right below."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeVar

import streamlit as st

from dashboard.fields import FormField, FormSection, Values

Errors = Mapping[str, Sequence[str]]
"""What is wrong, by field path."""


Number = TypeVar("Number", int, float)

FIELD_WIDTH = 180
"""Pixels: three in a row on a wide screen, two on a narrow one."""


@dataclass(slots=True)
class Drawn:
    """What the viewer has entered, and what could not be read of it."""

    values: Values = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def draw(
    section: FormSection,
    values: Values,
    errors: Errors,
    key: str,
    suggestions: Mapping[str, Sequence[str]] | None = None,
) -> Drawn:
    """Draw a section's fields, as many in a row as fit.

    ``key`` tells one set of widgets from the next. ``suggestions`` are known values of text
    fields, by path; others can be typed.
    """
    drawn = Drawn()
    shown = [f for f in section.fields if f.kind != "fixed"]
    for found in section.fields:
        drawn.values[found.path] = values[found.path]
    with st.container(key=f"fields_{key}_{section.name}", horizontal=True, gap="small"):
        for item in shown:
            _draw_with_errors(item, drawn, errors, key, (suggestions or {}).get(item.path, ()))
    return drawn


def _draw_with_errors(
    item: FormField, drawn: Drawn, errors: Errors, key: str, known: Sequence[str]
) -> None:
    problems = errors.get(item.path, ())
    mark = "bad" if problems else "fine"
    with st.container(key=f"field_{mark}_{key}_{item.path.replace('.', '_')}", width=FIELD_WIDTH):
        _draw_field(item, drawn, f"{key}.{item.path}", known)
        show_problems((*problems, *_own(drawn, item)))


def show_problems(problems: Sequence[str]) -> None:
    """What is wrong with the field that was drawn last."""
    for problem in problems:
        st.html(f'<div class="lg-field-error">{escape(problem)}</div>')


def _own(drawn: Drawn, item: FormField) -> tuple[str, ...]:
    found = drawn.unreadable.get(item.path)
    return (found,) if found else ()


def _draw_field(item: FormField, drawn: Drawn, key: str, known: Sequence[str]) -> None:
    value = drawn.values[item.path]
    if item.kind == "json":
        _draw_json(item, drawn, key)
    elif item.kind in ("integer", "number"):
        drawn.values[item.path] = _number(item, value, key)
    elif item.kind == "boolean":
        drawn.values[item.path] = st.toggle(item.label, bool(value), key=key, help=item.help)
    elif item.kind == "choice":
        drawn.values[item.path] = _choice(item, value, key)
    elif known:
        options = list(dict.fromkeys([*known, value]))
        drawn.values[item.path] = st.selectbox(
            item.label,
            options,
            options.index(value),
            key=key,
            help=item.help,
            accept_new_options=True,
        )
    else:
        drawn.values[item.path] = st.text_input(item.label, value or "", key=key, help=item.help)


def _choice(item: FormField, value: Any, key: str) -> Any:
    options = [None, *item.choices] if item.is_nullable else list(item.choices)
    return st.selectbox(
        item.label,
        options,
        options.index(value) if value in options else 0,
        key=key,
        help=item.help,
        format_func=lambda option: "none" if option is None else str(option).replace("_", " "),
    )


def _number(item: FormField, value: Any, key: str) -> float | int | None:
    """A number; whole numbers stay integers, empty is None where the setting may be empty."""
    entered = _whole(item, value, key) if item.kind == "integer" else _real(item, value, key)
    if entered is None and not item.is_nullable:
        return int(value) if item.kind == "integer" else float(value)
    return entered


def begins_with(value: Number | None, key: str, *, may_be_empty: bool) -> Number | None:
    """What a number field is to begin with, as its default.

    Streamlit gives a field whose default is a number no way to be emptied. So the default of one
    that may be empty is empty, and ``value`` is put into its state.
    """
    if not may_be_empty:
        return value
    if key not in st.session_state:
        st.session_state[key] = value
    return None


def _whole(item: FormField, value: Any, key: str) -> int | None:
    whole = None if value is None else int(value)
    return st.number_input(
        item.label,
        min_value=None if item.minimum is None else int(item.minimum),
        max_value=None if item.maximum is None else int(item.maximum),
        value=begins_with(whole, key, may_be_empty=item.is_nullable),
        step=1,
        placeholder="empty",
        key=key,
        help=item.help,
    )


def _real(item: FormField, value: Any, key: str) -> float | None:
    real = None if value is None else float(value)
    return st.number_input(
        item.label,
        min_value=None if item.minimum is None else float(item.minimum),
        max_value=None if item.maximum is None else float(item.maximum),
        value=begins_with(real, key, may_be_empty=item.is_nullable),
        step=_step(value),
        format="%.6g",
        placeholder="empty",
        key=key,
        help=item.help,
    )


def _step(value: Any) -> float:
    """A tenth of a power of ten below the value, so that the arrows move by something sensible."""
    size = abs(float(value)) if value else 1.0
    step = 1.0
    while step > size / 2 and step > 1e-9:
        step /= 10
    return step


def _draw_json(item: FormField, drawn: Drawn, key: str) -> None:
    shown = json.dumps(drawn.values[item.path] or {}, indent=1)
    text = st.text_area(f"{item.label} (JSON)", shown, key=key, help=item.help, height=92)
    try:
        drawn.values[item.path] = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        drawn.unreadable[item.path] = f"Not JSON in line {error.lineno}: {error.msg}."
