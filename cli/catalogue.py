"""``lagoon methods`` and ``lagoon environments``: what a run can be made of. Needs no API."""

from typing import Any

from cli.options import HomeOption, JsonOption
from cli.output import say, say_json, table
from lagoon.environments import ENVIRONMENTS
from lagoon.methods import METHODS


def methods(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The training methods."""
    rows = [
        {
            "name": method.model_fields["name"].default,
            "title": method.title,
            "family": method.family,
            "paper": method.paper,
            "help": _first_line(method),
            "schema": method.model_json_schema(),
        }
        for method in METHODS
    ]
    _show(rows, [("name", "NAME"), ("family", "FAMILY"), ("paper", "ARXIV"), ("help", "")], as_json)


def environments(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The environments."""
    rows = [
        {
            "name": environment.model_fields["name"].default,
            "title": environment.title,
            "help": _first_line(environment),
            "schema": environment.model_json_schema(),
        }
        for environment in ENVIRONMENTS
    ]
    _show(rows, [("name", "NAME"), ("help", "")], as_json)


def _show(rows: list[dict[str, Any]], columns: list[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        say_json(rows)
    else:
        say(table(rows, columns))


def _first_line(owner: type) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0]
