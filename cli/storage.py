"""``lagoon storage``: what runs take, and what of it is where."""

from typing import Annotated, Any

import typer

from cli.client import connect
from cli.home import find_home
from cli.options import HomeOption, JsonOption
from cli.output import say, say_json, table
from lagoon.sizes import in_words

COLUMNS = (
    ("run_id", "ID"),
    ("name", "NAME"),
    ("status", "STATUS"),
    ("checkpoint_bytes", "CHECKPOINTS"),
    ("trajectory_bytes", "TRAJECTORIES"),
    ("log_bytes", "LOG"),
    ("metric_bytes", "METRICS"),
    ("spool_bytes", "SPOOL"),
    ("total_bytes", "ALL"),
)


def storage(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="At most so many runs.")
    ] = 50,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What your runs take, the largest first; for an admin all runs, and the home as a whole."""
    with connect(find_home(home), context.obj) as api:
        found = api.get("/storage", limit=limit)
    if as_json:
        say_json(found)
        return
    say(table([_in_words(run) for run in found["runs"]], COLUMNS) if found["runs"] else "No runs.")
    say(f"\n{found['num_runs']} runs take {in_words(found['total']['total_bytes'])}.")
    if found["home"] is not None:
        _say_home(found["home"], found["total"]["checkpoint_bytes"])


def _in_words(sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: in_words(value) if name.endswith("_bytes") else value for name, value in sizes.items()
    }


def _say_home(home: dict[str, Any], checkpoint_bytes: int) -> None:
    quota = home["checkpoint_quota_bytes"]
    of = f"of {in_words(quota)} allowed" if quota is not None else "without a quota"
    say(f"Checkpoints take {in_words(checkpoint_bytes)} {of}.")
    say(f"The database takes {in_words(home['database_bytes'])}.")
    free, total = in_words(home["disk_free_bytes"]), in_words(home["disk_total_bytes"])
    say(f"The disk has {free} of {total} free.")
