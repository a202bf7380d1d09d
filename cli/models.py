"""``lagoon models``: the built-in models, and building them ahead of their first run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from cli.home import Home, find_home
from cli.options import HomeOption, JsonOption
from cli.output import Refusal, say, say_json, table
from lagoon.models import MODELS, known_model

app = typer.Typer(help="Built-in models.", no_args_is_help=True)


@app.command("list")
def list_models(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The built-in models, and whether each has been built."""
    folder = find_home(home)
    rows = [
        {
            "name": model.name,
            "title": model.title,
            "built": is_built(folder, model.name),
            "help": model.help,
        }
        for model in MODELS
    ]
    if as_json:
        say_json(rows)
        return
    shown = [{**row, "built": "yes" if row["built"] else "no"} for row in rows]
    say(table(shown, [("name", "NAME"), ("built", "BUILT"), ("help", "WHAT IT IS")]))


@app.command("build")
def build_model(
    name: Annotated[str, typer.Argument(help="The model's name.")], home: HomeOption = None
) -> None:
    """Build a model, unless the home folder has it."""
    if known_model(name) is None:
        known = ", ".join(model.name for model in MODELS)
        raise Refusal(f"No built-in model is called {name!r}. There are: {known}.")
    folder = find_home(home)
    folder.create()
    if not ensure_built(folder, name, say, {**os.environ, "LAGOON_HOME": str(folder.root)}):
        say(f"{name} has been built already.")


def is_built(home: Home, name: str) -> bool:
    """True when the home folder holds the built-in model as its recipe makes it today."""
    # The other commands, which only speak HTTP, do without the workers' packages.
    from workers.models.recipes import MissingWeights, fingerprint  # noqa: PLC0415  see above

    try:
        return (home.root / "models" / name / fingerprint(name)).is_dir()
    except MissingWeights:
        return False


def ensure_built(
    home: Home, name: str, progress: Callable[[str], None], environment: Mapping[str, str]
) -> bool:
    """Build a model that is missing, in a process with the given environment.

    Returns whether it was built now. Raises ``Refusal`` when it cannot be.
    """
    if is_built(home, name):
        return False
    progress(f"Building the model {name!r} (once):")
    # In a process of its own: the command must not load torch.
    command = [sys.executable, "-m", "workers.models", name, "--home", str(home.root)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environment)
    ) as builder:
        assert builder.stdout is not None  # a pipe was asked for
        lines = []
        for line in builder.stdout:
            lines.append(line.rstrip())
            progress(f"  {lines[-1]}")
    if builder.returncode != 0:
        last = lines[-1] if lines else f"exit code {builder.returncode}"
        raise Refusal(f"The model {name!r} could not be built: {last}")
    return True
