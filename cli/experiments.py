"""``lagoon experiments``: the pages that runs are gathered on."""

from typing import Annotated

import typer

from cli.client import connect
from cli.home import find_home
from cli.options import HomeOption, JsonOption, LimitOption
from cli.output import say, say_json, table
from cli.runs import COLUMNS as RUN_COLUMNS

app = typer.Typer(help="Experiments.", no_args_is_help=True)

COLUMNS = (("id", "ID"), ("title", "TITLE"), ("num_runs", "RUNS"), ("created_at", "MADE AT"))


@app.command("list")
def list_experiments(
    context: typer.Context,
    limit: LimitOption = 50,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Experiments, newest first."""
    with connect(find_home(home), context.obj) as api:
        experiments = list(api.pages("/experiments", limit))
    if as_json:
        say_json(experiments)
    else:
        say(table(experiments, COLUMNS) if experiments else "No experiments yet.")


@app.command("create")
def create(
    context: typer.Context,
    title: Annotated[str, typer.Argument(help="Its title.")],
    notes: Annotated[str, typer.Option("--notes", help="Markdown.")] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an experiment."""
    with connect(find_home(home), context.obj) as api:
        experiment = api.post("/experiments", {"title": title, "notes": notes})
    if as_json:
        say_json(experiment)
    else:
        say(f"Experiment {experiment['id']} ({experiment['title']}).")


@app.command("show")
def show(
    context: typer.Context,
    experiment_id: Annotated[str, typer.Argument(help="Its id.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """An experiment and its runs."""
    with connect(find_home(home), context.obj) as api:
        experiment = api.get(f"/experiments/{experiment_id}")
        runs = list(api.pages("/runs", experiment_id=experiment_id))
    if as_json:
        say_json({**experiment, "runs": runs})
        return
    say(f"{experiment['title']} ({experiment['id']})")
    if experiment.get("notes"):
        say(f"\n{experiment['notes']}\n")
    say(table(runs, RUN_COLUMNS) if runs else "No runs yet.")
