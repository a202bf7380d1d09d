"""The database's tables: copied, filled again, and brought to the newest version at a start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from backend.database import known_versions, table_version, upgrade
from cli.home import Home
from cli.output import Refusal
from cli.services.postgres import client_program, database_url, sockets


def bring_up_to_date(home: Home, say: Callable[[str], None]) -> None:
    """Migrate the tables of a home whose PostgreSQL runs.

    Tables of an earlier version are copied to ``backups`` first. Raises ``Refusal``, with nothing
    changed, when the tables are of a version that this Lagoon does not know.
    """
    url, known = database_url(home), known_versions()
    found = table_version(url)
    if found is not None and found not in known:
        raise Refusal(
            f"The data in {home.root} was written by a newer Lagoon: its tables have version "
            f"{found}, this one knows {known[-1]}. Nothing was changed. Start the newer Lagoon, or "
            "restore a backup into another home folder."
        )
    if found is not None and found != known[-1]:
        copy = home.root / "backups" / f"tables-of-version-{found}.dump"
        dump(home, copy)
        say(f"  database         its tables, of version {found}, were copied to {copy}")
    upgrade(url)
    say("  database         tables are up to date")


def dump(home: Home, file: Path) -> None:
    """Copy the whole database into ``file``, as it is at one moment, whatever goes on.

    The file appears when it is complete. Raises ``Refusal`` with what PostgreSQL said.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.part")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    flags = ("--format=custom", "--no-owner", "--dbname=postgres")
    try:
        with open(descriptor, "wb") as output:
            _run(home, "pg_dump", *flags, output=output)
            os.fsync(output.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def load(home: Home, file: Path) -> None:
    """Fill the empty database of a home with what ``dump`` copied, or change nothing.

    Raises ``Refusal`` with what PostgreSQL said.
    """
    flags = ("--single-transaction", "--no-owner", "--exit-on-error", "--dbname=postgres")
    _run(home, "pg_restore", *flags, str(file))


def _run(home: Home, program: str, *arguments: str, output: object = None) -> None:
    command = [str(client_program(program)), f"--host={sockets(home)}", "--username=postgres"]
    done = subprocess.run(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,  # type: ignore[call-overload]  # a file, or nothing
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error:" in line.lower()]
        raise Refusal(f"{program} failed: {(lines or ['it gave no reason'])[0]}")
