"""Live control: which settings of a run may change while it goes on, and what comes of it.

::

    config ─▶ Controlled ──(settings asked for)──▶ refused, with the fields and the reason
                  ▲                           └──▶ Controlled: the config with them, paused or not
                  └── the changes of the log, folded in their order: the same again

A change is accepted only when the whole configuration with it is valid, by the same validators that
it passed when the run was made. Whoever folds the same log over the same configuration (the API, a
driver, the next attempt's driver) has the same settings.

Methods say themselves which of their fields may change (``Method.live``). A pause is a state beside
the configuration: nothing is sampled and nothing is trained on until it is lifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lagoon.config import RunConfig
from lagoon.methods import METHODS, PolicyGradient
from lagoon.methods.base import Method
from lagoon.problems import FieldProblem, field_problems

PAUSED = "paused"
"""The name of the pause among settings: true or false."""
MACHINE = ("rollout.max_concurrent",)
"""What may change whatever the method: it depends on the machine."""

Value = bool | int | float | None
Settings = Mapping[str, Value]
"""Values by dotted path, and of the pause by its name."""


class Change(BaseModel):
    """What was asked for at once, and takes effect at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=1)
    """Place among the changes of its run."""
    settings: dict[str, Value] = Field(min_length=1)


class Refused(Exception):
    """A change that cannot be honoured; ``problems`` has the fields and the reasons."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__("; ".join(f"{', '.join(p.fields)}: {p.message}" for p in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Controlled:
    """What a run goes by: its configuration as it is now, and whether it is paused."""

    config: RunConfig
    is_paused: bool = False

    @property
    def values(self) -> dict[str, Value]:
        """All that may be changed, with its present value."""
        return {PAUSED: self.is_paused} | {
            path: _value_at(self.config, path) for path in changeable(self.config)
        }

    def after(self, settings: Settings) -> Controlled:
        """The same with ``settings``. Raises ``Refused``: then nothing is as asked."""
        present = self.values
        problems = [
            problem
            for path, value in settings.items()
            if (problem := _problem(self.config, present, path, value)) is not None
        ]
        if problems or not settings:
            nothing = FieldProblem(("settings",), "nothing is asked for")
            raise Refused(problems or [nothing])
        config = _with(self.config, {k: v for k, v in settings.items() if k != PAUSED})
        changed = Controlled(config, bool(settings.get(PAUSED, self.is_paused)))
        same = [path for path in settings if changed.values[path] == present[path]]
        if same:
            raise Refused([FieldProblem((path,), _already(path, present[path])) for path in same])
        return changed


def changeable(config: RunConfig) -> tuple[str, ...]:
    """Dotted paths of the settings that may change while a run of this configuration goes on."""
    return (*MACHINE, *(f"method.{name}" for name in config.method.live))


def folded(config: RunConfig, changes: Iterable[Change]) -> Controlled:
    """The configuration after changes, in their order, without those that cannot be honoured: all
    were accepted after those before them, but a driver may have refused one of these since."""
    return reduce(_after_if_possible, changes, Controlled(config))


def _after_if_possible(state: Controlled, change: Change) -> Controlled:
    try:
        return state.after(change.settings)
    except Refused:
        return state


def superseded(changes: Sequence[Change]) -> frozenset[int]:
    """The numbers of those of which nothing is left when all take effect together: every setting
    is set again by a later one."""
    found, later = set(), set[str]()
    for change in reversed(changes):
        if later.issuperset(change.settings):
            found.add(change.number)
        later.update(change.settings)
    return frozenset(found)


def in_words(before: Settings, after: Settings) -> str:
    """A change as people read it: what it was and what it became."""
    return ", ".join(_one_in_words(path, before.get(path), after[path]) for path in after)


def _one_in_words(path: str, before: Value, after: Value) -> str:
    if path == PAUSED:
        return "paused" if after else "resumed"
    return f"{path.rpartition('.')[2]} {shown(before)} → {shown(after)}"


def shown(value: Value) -> str:
    """A value as people read it; an empty one is no bound."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _problem(config: RunConfig, present: Settings, path: str, value: Value) -> FieldProblem | None:
    """What is wrong with one setting by itself."""
    if path not in present:
        return FieldProblem((path, *_owner(path)), _why_not(config, path))
    if path == PAUSED:
        if not isinstance(value, bool):
            return FieldProblem((path,), "is either true or false")
    elif isinstance(value, bool):
        return FieldProblem((path,), "takes a number")
    return None


def _owner(path: str) -> tuple[str, ...]:
    """The field that decides whether a setting of the method may change."""
    names = {f"method.{name}" for method in METHODS for name in method.live}
    return ("method.name",) if path in names else ()


def _why_not(config: RunConfig, path: str) -> str:
    known = ", ".join((PAUSED, *changeable(config)))
    if _owner(path):
        title = config.method.title
        return f"{title} has no such setting to change; while it goes on there are: {known}"
    return f"cannot be changed while the run goes on; what can: {known}"


def _already(path: str, value: Value) -> str:
    is_now = ("paused already" if value else "not paused") if path == PAUSED else ""
    return f"is {is_now or f'{shown(value)} already'}: the change would have no effect"


def _value_at(config: RunConfig, path: str) -> Value:
    section, name = path.split(".")
    value: Value = getattr(getattr(config, section), name)
    return value


def _with(config: RunConfig, settings: Settings) -> RunConfig:
    """The configuration with other values, validated as a whole."""
    if not settings:
        return config
    _refuse_the_other_loop(config, settings)
    data: dict[str, Any] = config.model_dump(mode="json")
    for path, value in settings.items():
        section, name = path.split(".")
        data[section][name] = value
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise Refused(field_problems(error, RunConfig)) from error


def _refuse_the_other_loop(config: RunConfig, settings: Settings) -> None:
    """Raise ``Refused`` for a bound that leaves or enters taking turns. Said first: what else
    clashes follows from it."""
    of_method = {path.split(".")[1]: path for path in settings if path.startswith("method.")}
    update = {name: settings[path] for name, path in of_method.items()}
    if _takes_turns(config.method.model_copy(update=update)) == _takes_turns(config.method):
        return
    message = (
        "a bound of 0 is synchronous training, where generation and training take turns: a run "
        "goes on as it began; fork it to go on the other way"
    )
    raise Refused([FieldProblem((next(iter(of_method.values())), "method.name"), message)])


def _takes_turns(method: Method) -> bool:
    return isinstance(method, PolicyGradient) and method.staleness_bound == 0
