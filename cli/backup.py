"""``lagoon backup`` and ``lagoon restore``: a home's database and run files in one file.

::

    attempts/ ──linked──┐
    database ──dumped───┼─▶ FILE.part ──complete──▶ FILE ──▶ an empty home: files, database, paths
    attempts/ ──linked──┘

Runs may go on meanwhile. A file that the copied database names was there before the copy or came
while it was made, so it is linked before or after; a link keeps it when its run removes it. Weights
that came and went within the copy are not in it: a restore forgets them, and says so. What a spool
holds beyond the database would go on arriving, with the paths of weights in the home that it is of:
a restore leaves spools out.

Not in it: models, which are built again, and credentials, which a new home makes for itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from backend.database import known_versions, table_version
from cli.home import Home, HomeLock
from cli.output import Refusal
from cli.services.postgres import connection_url, database_url, is_up, postgres
from cli.supervisor import Supervisor
from cli.tables import bring_up_to_date, dump, load
from lagoon.spools import ATTEMPTS, spool_of

FORMAT = 1
MANIFEST, DATABASE = "manifest.json", "database.dump"
NOT_COPIED = ("credential", "claim")
"""Files of attempts that are worth something only to the drivers of this home."""


def backup(home: Home, file: Path) -> dict[str, Any]:
    """Write a backup of a Lagoon that is up into ``file``; returns its manifest.

    Raises ``Refusal``, with nothing written, when Lagoon is not up or the file exists already.
    """
    if not is_up(home):
        raise Refusal(
            f"Lagoon is not up for {home.root}, so nothing changes there: copy the folder as it "
            "is, or start Lagoon and ask again. Nothing was written."
        )
    if file.exists():
        raise Refusal(f"{file} exists already. Nothing was written: choose another name.")
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=home.root) as name:
        staged = Path(name)
        _link_files(home.root / ATTEMPTS, staged / ATTEMPTS)
        dump(home, staged / DATABASE)
        _link_files(home.root / ATTEMPTS, staged / ATTEMPTS)
        manifest = _manifest(home, staged)
        (staged / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _pack(staged, file)
    return manifest


def restore(home: Home, file: Path) -> dict[str, Any]:
    """Fill an empty home folder from a backup; returns its manifest, with the checkpoints that the
    database named and that are not in the backup.

    Raises ``Refusal`` when the file is no backup that this Lagoon can read, or the home folder
    holds data; nothing is changed then.
    """
    manifest = _read_manifest(file)
    held = [name for name in ("postgres", ATTEMPTS) if (home.root / name).exists()]
    if held:
        raise Refusal(
            f"{home.root} holds data already ({', '.join(held)}). Nothing was changed: restore "
            "into another folder with --home DIR."
        )
    home.create()
    home.create_short()
    with HomeLock(home) as lock, _cleared_on_failure(home):
        if not lock.take():
            raise Refusal(f"Lagoon is starting for {home.root}. Nothing was changed.")
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=home.root) as name:
            unpacked = Path(name)
            with tarfile.open(file) as archive:
                archive.extractall(unpacked, filter="data")
            with _database(home):
                load(home, unpacked / DATABASE)
                bring_up_to_date(home, lambda line: None)
                _move_paths(home, Path(manifest["home"]))
                for attempt_id in [folder.name for folder in (unpacked / ATTEMPTS).iterdir()]:
                    shutil.rmtree(spool_of(unpacked, attempt_id), ignore_errors=True)
                (unpacked / ATTEMPTS).rename(home.root / ATTEMPTS)
                manifest["missing_checkpoints"] = _forget_missing(home)
    return manifest


def _link_files(source: Path, target: Path) -> None:
    """Give every file below ``source`` a second name below ``target``, unless it has one there."""
    target.mkdir(exist_ok=True)
    for folder, _, names in os.walk(source):
        beside = target / Path(folder).relative_to(source)
        beside.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name not in NOT_COPIED:
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.link(Path(folder) / name, beside / name)


def _manifest(home: Home, staged: Path) -> dict[str, Any]:
    files = [path for path in (staged / ATTEMPTS).rglob("*") if path.is_file()]
    return {
        "format": FORMAT,
        "lagoon": version("lagoon"),
        "tables": table_version(database_url(home)),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "home": str(home.root),
        "num_files": len(files),
        "num_bytes": sum(path.stat().st_size for path in (*files, staged / DATABASE)),
    }


def _pack(staged: Path, file: Path) -> None:
    unfinished = file.with_name(f".{file.name}.part")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as output:
            with tarfile.open(fileobj=output, mode="w") as archive:
                for name in (MANIFEST, DATABASE, ATTEMPTS):
                    archive.add(staged / name, name)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise Refusal(
            f"{file} cannot be written ({error.strerror}). There is no backup; the data is as it "
            "was."
        ) from None


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        with tarfile.open(file) as archive:
            member = archive.extractfile(MANIFEST)
            manifest: dict[str, Any] = json.load(member) if member else {}
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise Refusal(f"{file} is no backup of Lagoon ({error}). Nothing was changed.") from None
    if manifest.get("format") != FORMAT or manifest.get("tables") not in known_versions():
        raise Refusal(
            f"{file} was made by Lagoon {manifest.get('lagoon')}, which this one, "
            f"{version('lagoon')}, cannot read. Nothing was changed."
        )
    return manifest


@contextlib.contextmanager
def _database(home: Home) -> Iterator[None]:
    """The home's PostgreSQL, alone, for as long as the block."""
    supervisor = Supervisor(home, f"restore-{home.key}", lambda line: None, os.environ)
    try:
        supervisor.start(postgres(home))
        supervisor.wait_ready("postgres")
        yield
    finally:
        supervisor.stop()


@contextlib.contextmanager
def _cleared_on_failure(home: Home) -> Iterator[None]:
    """A restore that fails leaves the home as empty as it was."""
    try:
        yield
    except BaseException:
        for name in ("postgres", ATTEMPTS):
            shutil.rmtree(home.root / name, ignore_errors=True)
        raise


def _move_paths(home: Home, before: Path) -> None:
    """Let the database name the files where they are now."""
    old, new = f"{before}{os.sep}", f"{home.root}{os.sep}"
    with psycopg.connect(connection_url(home)) as connection:
        connection.execute(
            "update checkpoints set path = %s || substr(path, length(%s) + 1) "
            "where starts_with(path, %s)",
            (new, old, old),
        )
        # What an attempt that waits, or a fork, is to go on from.
        connection.execute(
            "update attempts set candidates = (select jsonb_agg(case when starts_with(path, %s) "
            "then %s || substr(path, length(%s) + 1) else path end order by n) from "
            "jsonb_array_elements_text(candidates) with ordinality as each (path, n)) "
            "where jsonb_array_length(candidates) > 0",
            (old, new, old),
        )


def _forget_missing(home: Home) -> list[str]:
    """Let the database name no weights below this home that are not there; returns their paths."""
    with psycopg.connect(connection_url(home)) as connection:
        rows = connection.execute("select id, path from checkpoints order by id").fetchall()
        missing = [
            (id, path)
            for id, path in rows
            if Path(path).is_relative_to(home.root) and not Path(path).exists()
        ]
        ids = [id for id, _ in missing]
        connection.execute("delete from checkpoints where id = any(%s)", (ids,))
    return [path for _, path in missing]
