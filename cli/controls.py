"""``lagoon runs pause``, ``set`` and ``controls``: changing a run that goes on."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Annotated, Any
from uuid import uuid4

import typer

from cli.client import connect
from cli.home import find_home
from cli.options import HomeOption, JsonOption, RunArgument
from cli.output import Refusal, say, say_json, table
from lagoon.controls import PAUSED, Value, shown

COLUMNS = (
    ("number", "NO."),
    ("words", "CHANGE"),
    ("requested_by", "BY"),
    ("requested_at", "ASKED FOR"),
    ("state", "STATE"),
    ("attempt", "ATTEMPT"),
    ("version", "VERSION"),
    ("why", "WHY"),
)
SettingsArgument = Annotated[
    list[str], typer.Argument(help="As rollout.max_concurrent=64; an empty value is no bound.")
]


def pause(
    context: typer.Context,
    run_id: RunArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a run after its update in progress; `runs resume` has it go on.

    Nothing is sampled or trained on meanwhile, and trajectories in flight are kept.
    """
    _change(context, run_id, {PAUSED: True}, home, as_json=as_json)


def set_settings(
    context: typer.Context,
    run_id: RunArgument,
    settings: SettingsArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a run that goes on, together, from its next batch on.

    `runs controls` lists those that may be changed.
    """
    _change(context, run_id, dict(map(_parsed, settings)), home, as_json=as_json)


def controls(
    context: typer.Context,
    run_id: RunArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What may be changed of a run while it goes on, and who has changed what."""
    with connect(find_home(home), context.obj) as api:
        found = api.get(f"/runs/{run_id}/controls")
    if as_json:
        say_json(found)
        return
    for path, value in found["values"].items():
        say(f"{path} = {_word(value)}")
    if found["changes"]:
        say(table(found["changes"], COLUMNS))


def _change(
    context: typer.Context,
    run_id: str,
    settings: dict[str, Value],
    home: Any,
    *,
    as_json: bool,
) -> None:
    with connect(find_home(home), context.obj) as api:
        key = uuid4().hex
        found = api.post(f"/runs/{run_id}/controls", {"settings": settings}, idempotency_key=key)
    if as_json:
        say_json(found)
        return
    newest = found["changes"][-1]
    say(f"Run {run_id}: {newest['words']} (change {newest['number']}, {newest['state']}).")


def _parsed(text: str) -> tuple[str, Value]:
    """``path=value`` as both. Raises ``Refusal``, with nothing asked of the API."""
    path, equals, given = text.partition("=")
    if not (path and equals):
        raise Refusal(f"{text!r} is no setting: write it as rollout.max_concurrent=64.", 2)
    if given in ("", "none"):
        return path, None
    with suppress(ValueError):
        return path, int(given)
    with suppress(ValueError):
        if isfinite(number := float(given)):
            return path, number
    raise Refusal(f"{given!r} is no number. Nothing was changed.", 2)


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else shown(value)
