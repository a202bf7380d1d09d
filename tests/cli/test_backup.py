"""Backups of a real database and real files, and what becomes of tables of another version."""

import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic import command

from backend.database import alembic_config, known_versions, table_version, upgrade
from cli import backup as module
from cli.backup import DATABASE, MANIFEST, backup, restore
from cli.home import Home
from cli.output import Refusal
from cli.services.postgres import connection_url, database_url, postgres
from cli.supervisor import Supervisor
from cli.tables import bring_up_to_date

FINAL = "r1-a1/checkpoints/final"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user may pass through, as pytest's are not for root."""
    with tempfile.TemporaryDirectory(prefix="lagoon-backup-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Home]:
    """A home whose PostgreSQL runs, with its tables and a checkpoint in them."""
    made = Home(folder / "home")
    made.create()
    made.create_short()
    supervisor = Supervisor(made, f"test-backup-{made.key}", lambda line: None, os.environ)
    try:
        supervisor.start(postgres(made))
        supervisor.wait_ready("postgres")
        upgrade(database_url(made))
        insert(made, "users", id="u1")
        insert(made, "experiments", id="e1", owner_id="u1")
        insert(made, "runs", id="r1", experiment_id="e1", owner_id="u1")
        insert(made, "checkpoints", run_id="r1", path=str(made.root / "attempts" / FINAL))
        insert(made, "attempts", id="r1-a1", run_id="r1", number="1", candidates="[]")
        paths = json.dumps([str(made.root / "attempts" / FINAL), "/nowhere/weights"])
        insert(made, "attempts", id="r1-a2", run_id="r1", number="2", candidates=paths)
        yield made
    finally:
        supervisor.stop()
        shutil.rmtree(made.short, ignore_errors=True)


@pytest.fixture
def home(running: Home) -> Iterator[Home]:
    """The running home with the files of one attempt."""
    leave(running, f"{FINAL}/model.safetensors", "weights")
    leave(running, "r1-a1/credential", "lga_secret")
    leave(running, "r1-a1/claim", "1 1")
    yield running
    shutil.rmtree(running.root / "attempts")


@pytest.fixture
def place(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own."""
    made = folder / str(request.node.name)
    made.mkdir()
    return made


def leave(home: Home, name: str, text: str) -> Path:
    file = home.root / "attempts" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def rows(home: Home, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(connection_url(home)) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


PLAIN = {"text": "", "bytea": b"", "jsonb": "{}", "boolean": False}


def insert(home: Home, table: str, **given: str) -> None:
    """A row; whatever else the table wants is empty."""
    wanted = rows(
        home,
        "select column_name, data_type from information_schema.columns "
        f"where table_name = '{table}' and is_nullable = 'NO' and column_default is null "
        "and is_identity = 'NO'",
    )
    values = {str(name): PLAIN.get(str(kind), 0) for name, kind in wanted} | given
    times = [str(name) for name, kind in wanted if str(kind).startswith("timestamp")]
    values |= dict.fromkeys(times, "2030-01-01")
    with psycopg.connect(connection_url(home)) as connection:
        places = ", ".join(["%s"] * len(values))
        connection.execute(
            f"insert into {table} ({', '.join(values)}) values ({places})",  # type: ignore[arg-type]
            list(values.values()),
        )


def names_in(file: Path) -> set[str]:
    with tarfile.open(file) as archive:
        return {member.name for member in archive if member.isfile()}


@pytest.mark.slow
def test_a_home_is_restored_elsewhere_with_its_database_and_its_files(
    home: Home, place: Path
) -> None:
    file = place / "lagoon.tar"
    gone = "attempts/r1-a1/checkpoints/step-000001"
    insert(home, "checkpoints", run_id="r1", path=str(home.root / gone))
    elsewhere = "/nowhere/weights"
    insert(home, "checkpoints", run_id="r1", path=elsewhere)
    spool = home.root / "attempts" / "r1-a1" / "spool"
    spool.mkdir()
    (spool / "0000000001.jsonl").write_text("{}\n")
    made = backup(home, file)
    shutil.rmtree(spool)
    assert (made["num_files"], made["tables"]) == (2, known_versions()[-1])
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [path for path in home.root.iterdir() if path.name.startswith(".backup")]
    assert "lga_secret" not in file.read_bytes().decode(errors="ignore")

    other = Home(place / "other")
    try:
        assert restore(other, file) == {**made, "missing_checkpoints": [str(other.root / gone)]}
        supervisor = Supervisor(other, f"test-backup-{other.key}", lambda line: None, os.environ)
        try:
            supervisor.start(postgres(other))
            supervisor.wait_ready("postgres")
            [(path,), (kept,)] = rows(other, "select path from checkpoints order by id")
            told = rows(other, "select candidates from attempts order by number")
        finally:
            supervisor.stop()
        assert (path, kept) == (str(other.root / "attempts" / FINAL), elsewhere)
        assert told == [([],), ([path, "/nowhere/weights"],)]
        assert (Path(str(path)) / "model.safetensors").read_text() == "weights"
        assert not (other.root / "attempts" / "r1-a1" / "spool").exists()
        with pytest.raises(Refusal, match="holds data already"):
            restore(other, file)
    finally:
        shutil.rmtree(other.short, ignore_errors=True)


@pytest.mark.slow
def test_files_that_come_and_go_while_a_backup_is_made_are_all_in_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.dump

    def dump(of: Home, file: Path) -> None:
        shutil.rmtree(home.root / "attempts/r1-a1")
        leave(home, "r2-a1/checkpoints/step-000001/model.safetensors", "newer")
        real(of, file)

    monkeypatch.setattr(module, "dump", dump)
    file = tmp_path / "lagoon.tar"
    backup(home, file)
    assert names_in(file) == {
        MANIFEST,
        DATABASE,
        f"attempts/{FINAL}/model.safetensors",
        "attempts/r2-a1/checkpoints/step-000001/model.safetensors",
    }
    with pytest.raises(Refusal, match="exists already"):
        backup(home, file)


@pytest.mark.slow
def test_tables_of_an_earlier_version_are_copied_and_those_of_a_newer_one_refused(
    home: Home,
) -> None:
    earlier, newest = known_versions()[-2:]
    command.downgrade(alembic_config(database_url(home)), earlier)
    said: list[str] = []
    bring_up_to_date(home, said.append)
    assert table_version(database_url(home)) == newest
    copy = home.root / "backups" / f"tables-of-version-{earlier}.dump"
    assert copy.read_bytes().startswith(b"PGDMP")
    assert str(copy) in said[0]
    bring_up_to_date(home, said.append)
    assert said[1:] == ["  database         tables are up to date"] * 2

    rows(home, "update alembic_version set version_num = '9999'")
    try:
        with pytest.raises(Refusal, match=r"written by a newer Lagoon.*version 9999.*Nothing was"):
            bring_up_to_date(home, said.append)
        assert table_version(database_url(home)) == "9999"
    finally:
        rows(home, f"update alembic_version set version_num = '{newest}'")


def test_a_lagoon_that_is_not_up_is_not_backed_up(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="copy the folder as it is"):
        backup(Home(tmp_path / "home"), tmp_path / "lagoon.tar")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is no backup of Lagoon"),
        (b"not a tar", "is no backup of Lagoon"),
        ({"format": 1, "tables": "9999", "lagoon": "9.0"}, "made by Lagoon 9.0, which this one"),
        ({"format": 2, "tables": "0001", "lagoon": "9.0"}, "cannot read"),
    ],
)
def test_what_is_no_backup_or_of_a_newer_lagoon_is_refused(
    tmp_path: Path, content: object, words: str
) -> None:
    file = tmp_path / "lagoon.tar"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, dict):
        manifest = json.dumps(content).encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(manifest)
        with tarfile.open(file, "w") as archive:
            archive.addfile(member, io.BytesIO(manifest))
    with pytest.raises(Refusal, match=words):
        restore(Home(tmp_path / "home"), file)
    assert not (tmp_path / "home").exists()
