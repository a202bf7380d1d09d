"""``lagoon runs``: from a file to a finished run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import controls
from cli.client import Api, connect
from cli.export import MAX_POINTS, exported
from cli.home import find_home
from cli.options import HomeOption, JsonOption, LimitOption, RunArgument
from cli.output import Refusal, say, say_json, table
from cli.runfile import read_config
from lagoon.status import RunStatus

app = typer.Typer(help="Runs.", no_args_is_help=True)

app.command("pause")(controls.pause)
app.command("set")(controls.set_settings)
app.command("controls")(controls.controls)

POLL_SECONDS = 1.0
COLUMNS = (
    ("id", "ID"),
    ("name", "NAME"),
    ("status", "STATUS"),
    ("step", "STEP"),
    ("first_heldout_success", "FIRST"),
    ("last_heldout_success", "LAST"),
    ("reason", "REASON"),
)
CheckpointOption = Annotated[
    int | None, typer.Option("--checkpoint", help="Its number, as `runs show` lists them.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the run has ended.")]


@app.command("create")
def create(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The run's configuration, YAML or JSON.")],
    name: Annotated[str | None, typer.Option("--name", help="Else the file's name.")] = None,
    experiment: Annotated[str | None, typer.Option("--experiment", help="Its id.")] = None,
    wait: WaitOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run. With --wait, ends with 1 unless the run finishes."""
    body = {"name": name or file.stem, "experiment_id": experiment, "config": read_config(file)}
    with connect(find_home(home), context.obj) as api:
        run = api.post("/runs", body)
        if not as_json:
            say(f"Run {run['id']} ({run['name']}) is {run['status']}. {run.get('reason') or ''}")
        if wait:
            run = wait_for_end(api, run["id"], quiet=as_json)
    if as_json:
        say_json(run)
    if wait and run["status"] != RunStatus.FINISHED:
        raise typer.Exit(1)


@app.command("list")
def list_runs(
    context: typer.Context,
    experiment: Annotated[str | None, typer.Option("--experiment", help="Of this one.")] = None,
    status: Annotated[RunStatus | None, typer.Option("--status", help="In this state.")] = None,
    limit: LimitOption = 50,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs, newest first."""
    with connect(find_home(home), context.obj) as api:
        runs = list(api.pages("/runs", limit, experiment_id=experiment, status=status))
    if as_json:
        say_json(runs)
    elif runs:
        say(table(runs, COLUMNS))
    else:
        say("No runs yet. Start one with: lagoon runs create FILE.yaml")


@app.command("show")
def show(
    context: typer.Context,
    run_id: RunArgument,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One run: its state, its attempts, its figures."""
    with connect(find_home(home), context.obj) as api:
        run = api.get(f"/runs/{run_id}")
    if as_json:
        say_json(run)
        return
    say(f"{run['name']} ({run['id']}): {run['status']}. {run.get('reason') or ''}".rstrip())
    say(f"step {run['step']} of {run['max_steps']}, {run['method']} on {run['environment']}")
    if run["is_paused"]:
        say(f"paused: `lagoon runs resume {run_id}` has it go on")
    first, last = run["first_heldout_success"], run["last_heldout_success"]
    if last is not None:
        say(f"held-out success {first:.3f} at first, {last:.3f} at last")
    for attempt in run["attempts"]:
        say(f"attempt {attempt['number']}: {attempt['status']} {attempt.get('reason') or ''}")
    for saved in run["checkpoints"]:
        notes = [word for word in ("final", "best") if saved[f"is_{word}"]]
        note = f" ({', '.join(notes)})" if notes else ""
        say(f"checkpoint {saved['id']}: step {saved['step']}{note} in {saved['path']}")
    if run.get("traceback"):
        say(run["traceback"])


@app.command("stop")
def stop(
    context: typer.Context, run_id: RunArgument, wait: WaitOption = False, home: HomeOption = None
) -> None:
    """Ask a run to stop: it saves its weights and ends."""
    with connect(find_home(home), context.obj) as api:
        run = api.post(f"/runs/{run_id}/stop")
        if wait and not RunStatus(run["status"]).is_terminal:
            run = wait_for_end(api, run_id, quiet=True)
    say(f"Run {run_id} is {run['status']}.")


@app.command("resume")
def resume(
    context: typer.Context,
    run_id: RunArgument,
    checkpoint: CheckpointOption = None,
    wait: WaitOption = False,
    home: HomeOption = None,
) -> None:
    """Have a run that stopped or failed go on, from its newest checkpoint or from another; or one
    that is paused."""
    with connect(find_home(home), context.obj) as api:
        run = api.post(f"/runs/{run_id}/resume", {"checkpoint_id": checkpoint})
        say(f"Run {run_id} is {run['status']}. {run['reason']}")
        if wait:
            run = wait_for_end(api, run_id, quiet=False)
    if wait and run["status"] != RunStatus.FINISHED:
        raise typer.Exit(1)


@app.command("fork")
def fork(
    context: typer.Context,
    run_id: RunArgument,
    checkpoint: CheckpointOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Else the run's, with -fork.")] = None,
    file: Annotated[
        Path | None, typer.Option("--config", help="A configuration; else the run's own.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a new run that begins with one of a run's checkpoints: the newest, or another.

    Steps up to the checkpoint count against its budget.max_steps; its training time begins at 0.
    """
    with connect(find_home(home), context.obj) as api:
        run = api.get(f"/runs/{run_id}")
        if checkpoint is None and not run["checkpoints"]:
            raise Refusal(f"Run {run_id} has no checkpoint to begin with.")
        body = {
            "checkpoint_id": checkpoint or run["checkpoints"][-1]["id"],
            "name": name or f"{run['name']}-fork",
            "config": read_config(file) if file else None,
            "experiment_id": run["experiment_id"],
        }
        forked = api.post(f"/runs/{run_id}/fork", body)
    if as_json:
        say_json(forked)
    else:
        say(f"Run {forked['id']} ({forked['name']}) is {forked['status']}.")


@app.command("logs")
def logs(
    context: typer.Context,
    run_id: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the run ends.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The end of a run's log. With --follow, --json prints one object a line."""
    with connect(find_home(home), context.obj) as api:
        page = api.get(f"/runs/{run_id}/log")
        if as_json and not follow:
            say_json(page["items"])
            return
        _say_lines(page, as_json=as_json)
        while follow:
            ended = RunStatus(api.get(f"/runs/{run_id}")["status"]).is_terminal
            page = api.get(f"/runs/{run_id}/log", after=page["next_after"])
            _say_lines(page, as_json=as_json)
            if ended and not page["items"]:
                return
            if not page["items"]:
                time.sleep(POLL_SECONDS)


@app.command("export")
def export(
    context: typer.Context,
    run_id: RunArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Else printed.")] = None,
    max_points: Annotated[
        int, typer.Option(min=10, max=MAX_POINTS, help="Of a metric; one with more is thinned.")
    ] = MAX_POINTS,
    home: HomeOption = None,
) -> None:
    """A run as one JSON document: config, metrics, histograms, events, log, trajectories.

    All of each, but for metrics with more than --max-points points, which are thinned, and events
    before the newest 1000. What is not whole is named under "truncated".
    """
    with connect(find_home(home), context.obj) as api:
        document = exported(api, run_id, max_points)
    if output is None:
        say_json(document)
        return
    try:
        output.write_text(json.dumps(document, allow_nan=False))
    except OSError as error:
        raise Refusal(f"{output} cannot be written ({error.strerror}).") from None
    say(f"Written to {output}.")


@app.command("delete")
def delete(
    context: typer.Context,
    run_id: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
) -> None:
    """Delete a run that has ended, with all it recorded and its weights in the home folder."""
    with connect(find_home(home), context.obj) as api:
        run = api.get(f"/runs/{run_id}")
        if not yes:
            typer.confirm(f"Delete {run['name']} ({run_id}) and all it recorded?", abort=True)
        deleted = api.delete(f"/runs/{run_id}")
    freed = deleted["freed_bytes"]
    say(f"Deleted {run['name']} ({run_id}); {freed:,} bytes on disk are free again.")
    if deleted["left_behind"]:
        left = "; ".join(deleted["left_behind"])
        raise Refusal(
            f"Files stayed behind that could not be removed: {left}. Remove them by hand."
        )


def wait_for_end(api: Api, run_id: str, *, quiet: bool) -> dict[str, Any]:
    """Poll a run until it has ended, saying what changes unless ``quiet``; its last state."""
    told = None
    while True:
        run: dict[str, Any] = api.get(f"/runs/{run_id}")
        news = (run["status"], run.get("reason"), run["step"])
        if news != told and not quiet:
            reason = f" ({news[1]})" if news[1] else ""
            say(f"{news[0]}{reason}, step {news[2]} of {run['max_steps']}")
        told = news
        if RunStatus(run["status"]).is_terminal:
            return run
        time.sleep(POLL_SECONDS)


def _say_lines(page: dict[str, Any], *, as_json: bool) -> None:
    for item in page["items"]:
        say(json.dumps(item, allow_nan=False) if as_json else item["line"])
