"""``lagoon queue``: who waits, why, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cli.client import connect
from cli.home import find_home
from cli.options import HomeOption, JsonOption, RunArgument
from cli.output import Refusal, say, say_json, table
from lagoon.queueing import PRIORITIES

app = typer.Typer(help="The queue.", no_args_is_help=True)

HELD = (
    ("run", "RUN"),
    ("name", "NAME"),
    ("owner", "OWNER"),
    ("status", "STATUS"),
    ("cpus", "CPUS"),
    ("gpus", "GPUS"),
    ("nodes", "NODES"),
)
WAITING = (
    ("position", "PLACE"),
    ("run", "RUN"),
    ("name", "NAME"),
    ("owner", "OWNER"),
    ("priority", "PRIORITY"),
    ("cpus", "CPUS"),
    ("gpus", "GPUS"),
    ("reason", "REASON"),
)
PAUSED = (
    ("run", "RUN"),
    ("name", "NAME"),
    ("owner", "OWNER"),
    ("cpus", "CPUS"),
    ("gpus", "GPUS"),
    ("restarts_at", "RESTARTS AT"),
    ("reason", "AFTER"),
)


@app.command("list")
def list_queue(
    context: typer.Context, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Who holds what, who waits, in order and with the reason, and who restarts when."""
    with connect(find_home(home), context.obj) as api:
        queue = api.get("/queue")
    if as_json:
        say_json(queue)
    else:
        _say_queue(queue)


@app.command("move")
def move(
    context: typer.Context,
    run_id: RunArgument,
    before: Annotated[str | None, typer.Option("--before", help="The id of another run.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="The id of another run.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a queued run before or after another one of the same owner and priority."""
    if (before is None) == (after is None):
        raise Refusal("Say where to: give either --before or --after. Nothing was moved.", 2)
    with connect(find_home(home), context.obj) as api:
        queue = api.post("/queue/moves", {"run_id": run_id, "before": before, "after": after})
    if as_json:
        say_json(queue)
        return
    found = [item for item in queue["items"] if item["run"] and item["run"]["run_id"] == run_id]
    say(f"Run {run_id} has place {found[0]['position']}." if found else f"Run {run_id} was moved.")


@app.command("priority")
def priority(
    context: typer.Context,
    run_id: RunArgument,
    level: Annotated[str, typer.Argument(help=f"One of {', '.join(PRIORITIES)}.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a queued run's priority. Only an admin may go above normal."""
    if level not in PRIORITIES:
        raise Refusal(f"{level!r} is no priority; there are {', '.join(PRIORITIES)}.", 2)
    with connect(find_home(home), context.obj) as api:
        run = api.patch(f"/runs/{run_id}/priority", {"priority": level})
    if as_json:
        say_json(run)
    else:
        say(f"Run {run_id} has priority {run['priority']}.")


def _say_queue(queue: dict[str, Any]) -> None:
    if queue["leases"]:
        say(table((_held(lease) for lease in queue["leases"]), HELD))
        say()
    if queue["items"]:
        say(table(({**item, **_names(item)} for item in queue["items"]), WAITING))
    else:
        say("Nobody waits.")
    if queue["paused"]:
        say()
        say(table((_pausing(item) for item in queue["paused"]), PAUSED))


def _pausing(item: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromisoformat(item["restarts_at"]).astimezone(UTC)
    return {**item, **_names(item), "restarts_at": f"{moment:%H:%M:%S} UTC"}


def _held(lease: dict[str, Any]) -> dict[str, Any]:
    nodes = ", ".join(share["node"] for share in lease["nodes"])
    return {**lease, **_names(lease), "nodes": nodes}


def _names(entry: dict[str, Any]) -> dict[str, Any]:
    """Id and name of the run; dashes for one that is not ours to see."""
    run = entry["run"]
    return {"run": run and run["run_id"], "name": run and run["name"]}
