"""The method object of a run's configuration, for what only its class knows."""

from types import NoneType
from typing import get_args

from pydantic import ValidationError

from dashboard.records import Config
from lagoon.methods import METHODS, PolicyGradient
from lagoon.methods.base import Method


def method_of(config: Config) -> Method | None:
    """The run's method; None when this installation does not know it, or not those settings."""
    section = config.get("method") or {}
    known = {cls.model_fields["name"].default: cls for cls in METHODS}
    found = known.get(section.get("name"))
    try:
        return found.model_validate(section) if found else None
    except ValidationError:
        return None


def may_be_empty(method: Method | None, path: str) -> bool:
    """Whether the method's setting at that dotted path may have no value."""
    section, _, name = path.partition(".")
    field = type(method).model_fields.get(name) if section == "method" and method else None
    return field is not None and NoneType in get_args(field.annotation)


def is_synchronous(method: Method | None) -> bool:
    """Whether generation waits for training, so that staleness must be 0.

    Evolution strategies know no bound of their own: each generation waits for all its members.
    """
    return method is not None and getattr(method, "staleness_bound", 0) == 0


def has_own_target(method: Method | None) -> bool:
    """Whether the method steers its pool to a target, which else is the batch."""
    return (
        isinstance(method, PolicyGradient)
        and type(method).pool_target is not PolicyGradient.pool_target
    )
