"""The ``lagoon`` command: this file only says which commands there are."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from pydantic import ValidationError

from cli import catalogue, experiments, keys, models, queue, runs
from cli.down import down as stop_all
from cli.down import status as find_status
from cli.home import find_home
from cli.options import HomeOption, JsonOption
from cli.output import Refusal, say, say_json, table, warn
from cli.runfile import new_output, prepare_output, read_config
from cli.services.ray_head import use_ray
from cli.storage import storage
from lagoon.config import RunConfig
from lagoon.problems import field_problems
from lagoon.sizes import in_words

app = typer.Typer(
    help="Post-training of LLM agents with asynchronous RL and evolution strategies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(runs.app, name="runs")
app.add_typer(queue.app, name="queue")
app.add_typer(experiments.app, name="experiments")
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")
app.command("methods")(catalogue.methods)
app.command("environments")(catalogue.environments)
app.command("storage")(storage)


@app.command()
def up(
    home: HomeOption = None,
    api_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the API.")] = None,
    dashboard_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Of the dashboard.")
    ] = None,
    demo: Annotated[bool, typer.Option(help="Make the demo runs, the first time.")] = True,
) -> None:
    """Start Lagoon on this machine, until Ctrl-C."""
    from cli import up as starter  # noqa: PLC0415  it loads the database's and Valkey's packages

    starter.up(find_home(home), starter.Wishes(api_port, dashboard_port, demo))


@app.command()
def down(home: HomeOption = None) -> None:
    """Stop Lagoon, from another terminal."""
    stopped = stop_all(find_home(home))
    say(
        "Stopped. Nothing is left running; the data is kept." if stopped else "Nothing was running."
    )


@app.command()
def status(context: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Whether Lagoon is up, and how it is. Ends with 1 when it is not up or does not answer."""
    found = find_status(find_home(home), context.obj)
    if as_json:
        say_json(found)
    else:
        _say_status(found)
    if not found["up"] or not found["checks"].get("api", {"ok": True})["ok"]:
        raise typer.Exit(1)


@app.command()
def train(
    file: Annotated[Path, typer.Argument(help="The run's configuration, YAML or JSON.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Folder for events and weights; else a new one in runs/."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Go on from a checkpoint, or from another run's --output."),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Run a configuration here, without API, database or dashboard."""
    try:
        config = RunConfig.model_validate(read_config(file))
    except ValidationError as error:
        problems = [
            f"  {', '.join(problem.fields)}: {problem.message}"
            for problem in field_problems(error, RunConfig)
        ]
        raise Refusal("\n".join([f"{file} is not a valid run:", *problems])) from None
    folder = output or new_output(file, datetime.now())
    prepare_output(folder)
    say(f"Events and weights go to {folder}.")
    found = find_home(home)
    say(use_ray(found, os.environ))
    # They load Ray and torch, which nothing else needs.
    from workers import resuming, standalone  # noqa: PLC0415

    candidates = resuming.candidates_in(resume) if resume else resuming.FROM_THE_START
    raise typer.Exit(standalone.train_standalone(config, folder, found.root, candidates))


@app.command("backup")
def back_up(
    file: Annotated[Path, typer.Argument(help="The file to write, as lagoon.tar.")],
    home: HomeOption = None,
) -> None:
    """Copy database and run files into one file, while runs go on."""
    from cli.backup import backup  # noqa: PLC0415  it loads SQLAlchemy; most commands do without

    made = backup(find_home(home), file)
    say(f"{file}: the database and {made['num_files']} files, {in_words(made['num_bytes'])}.")


@app.command("restore")
def restore_backup(
    file: Annotated[Path, typer.Argument(help="A file that `lagoon backup` wrote.")],
    home: HomeOption = None,
) -> None:
    """Fill an empty home folder from a backup."""
    from cli.backup import restore  # noqa: PLC0415  likewise

    folder = find_home(home)
    made = restore(folder, file)
    for path in made["missing_checkpoints"]:
        say(f"Not in the backup, and so forgotten: the weights in {path}")
    say(f"{folder.root} is as it was at {made['made_at']}. Start it with: lagoon up")


def main(arguments: list[str] | None = None, transport: httpx.BaseTransport | None = None) -> None:
    """Run the command. ``transport`` stands in for the network in tests."""
    try:
        app(args=arguments, obj=transport)
    except Refusal as refusal:
        warn(str(refusal))
        raise SystemExit(refusal.exit_code) from None


def _say_status(found: dict[str, Any]) -> None:
    if not found["up"]:
        say(f"Lagoon is not up for the home folder {found['home']}. Start it with: lagoon up")
        return
    say(f"Lagoon is up: {found['dashboard_url']} (home folder {found['home']})")
    say(f"{len(found['processes'])} processes, {found['memory_mib']} MiB with all they started")
    rows = [
        {"name": name, "ok": "ok" if check["ok"] else "FAILS", "detail": check.get("detail")}
        for name, check in found["checks"].items()
    ]
    say(table(rows, [("name", "CHECK"), ("ok", ""), ("detail", "")]))


if __name__ == "__main__":
    main()
