"""``lagoon keys``: what signs commands and scripts in, on this machine and on others."""

from typing import Annotated

import typer

from cli.client import connect
from cli.home import find_home
from cli.options import HomeOption, JsonOption
from cli.output import say, say_json, table

app = typer.Typer(help="API keys.", no_args_is_help=True)

COLUMNS = (("id", "ID"), ("name", "NAME"), ("created_at", "MADE AT"), ("last_used_at", "LAST USED"))


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an API key. It is shown once."""
    with connect(find_home(home), context.obj) as api:
        key = api.post("/api-keys", {"name": name})
    if as_json:
        say_json(key)
    else:
        say(f"Key {key['id']} ({key['name']}), shown this once: {key['token']}")
        say("Commands elsewhere use it through LAGOON_API_URL and LAGOON_API_KEY.")


@app.command("list")
def list_keys(context: typer.Context, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """One's own API keys, without their secrets."""
    with connect(find_home(home), context.obj) as api:
        keys = api.get("/api-keys")["items"]
    if as_json:
        say_json(keys)
    else:
        say(table(keys, COLUMNS) if keys else "No keys yet.")


@app.command("revoke")
def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(help="The key's id.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an API key worthless."""
    with connect(find_home(home), context.obj) as api:
        api.delete(f"/api-keys/{key_id}")
    if as_json:
        say_json({"id": key_id, "revoked": True})
    else:
        say(f"Key {key_id} opens nothing any more.")
