"""The migrations make exactly the tables that the code declares, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from alembic import command

from backend.database import alembic_config, upgrade


@pytest.fixture
def other_database(postgres_url: str) -> Iterator[str]:
    """A second, empty database on the same server."""
    server = postgres_url.replace("+psycopg", "")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE migrations")
        yield postgres_url.replace("/postgres?", "/migrations?")
        connection.execute("DROP DATABASE migrations WITH (FORCE)")


def tables(url: str) -> list[str]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        rows = connection.execute(
            "select tablename from pg_tables where schemaname = 'public' order by 1"
        )
        return [name for (name,) in rows]


def test_alembic_finds_nothing_to_change(postgres_url: str) -> None:
    command.check(alembic_config(postgres_url))


def test_the_migrations_go_up_and_down(other_database: str) -> None:
    upgrade(other_database)
    upgrade(other_database)
    assert "metric_points" in tables(other_database)
    command.downgrade(alembic_config(other_database), "base")
    assert tables(other_database) == ["alembic_version"]
    upgrade(other_database)
    assert "metric_points" in tables(other_database)


PLAIN = {"text": "", "jsonb": "{}", "json": "[]", "boolean": False, "ARRAY": [1, 2]}


def insert(url: str, table: str, **given: object) -> int:
    """A row; whatever else the table wants is empty. Returns its id, or 0 where it has none."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        wanted = connection.execute(
            "select column_name, data_type from information_schema.columns where table_name = %s "
            "and is_nullable = 'NO' and column_default is null and is_identity = 'NO'",
            [table],
        ).fetchall()
        values = {name: PLAIN.get(kind, 0) for name, kind in wanted} | given
        values |= {name: "2030-01-01" for name, kind in wanted if kind.startswith("timestamp")}
        places = ", ".join(["%s"] * len(values))
        row = connection.execute(
            f"insert into {table} ({', '.join(values)}) values ({places}) returning *".encode(),
            list(values.values()),
        ).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0


def test_what_earlier_runs_hold_is_counted_when_the_tables_come(other_database: str) -> None:
    url = other_database
    command.upgrade(alembic_config(url), "0005")
    insert(url, "users", id="u1")
    insert(url, "experiments", id="e1", owner_id="u1")
    for run_id in ("r1", "r2"):
        insert(url, "runs", id=run_id, experiment_id="e1", owner_id="u1")
    insert(url, "log_lines", run_id="r1", n=1, line="äb")
    insert(url, "log_lines", run_id="r1", n=2, line="")
    insert(url, "trajectories", run_id="r2", turns='[{"text": "x"}]')
    series = insert(url, "metric_series", run_id="r1")
    for attempt in (1, 2):
        insert(url, "metric_latest", series_id=series, attempt=attempt, count=5)
    insert(url, "histograms", series_id=series)
    upgrade(url)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "select run_id, kind, num_held, held_bytes from run_storage order by 1, 2"
        ).fetchall()
    assert found == [
        ("r1", "histograms", 1, 150 + 32),
        ("r1", "log_lines", 2, 2 * 80 + 3),
        ("r1", "points", 10, 1100),
        ("r2", "trajectories", 1, 300 + 15),
    ]


def test_what_was_about_to_start_without_a_lease_is_queued_again(other_database: str) -> None:
    url = other_database
    command.upgrade(alembic_config(url), "0005")
    insert(url, "users", id="u1")
    insert(url, "experiments", id="e1", owner_id="u1")
    for run_id, status in (("r1", "starting"), ("r2", "running")):
        insert(url, "runs", id=run_id, experiment_id="e1", owner_id="u1", status=status)
        insert(url, "attempts", id=f"{run_id}-a1", run_id=run_id, status=status)
        insert(url, "outbox", attempt_id=f"{run_id}-a1", task="workers.submit")
    upgrade(url)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "select runs.status, attempts.status, (select count(*) from outbox where attempt_id = "
            "attempts.id) from runs join attempts on run_id = runs.id order by runs.id"
        ).fetchall()
    assert found == [("queued", "queued", 0), ("running", "running", 1)]


def test_runs_of_before_live_control_go_on_unchanged_and_unpaused(other_database: str) -> None:
    url = other_database
    command.upgrade(alembic_config(url), "0009")
    insert(url, "users", id="u1")
    insert(url, "experiments", id="e1", owner_id="u1")
    insert(url, "runs", id="r1", experiment_id="e1", owner_id="u1", status="running")
    insert(url, "attempts", id="r1-a1", run_id="r1", status="running")
    upgrade(url)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "select is_paused, runs.num_changes, attempts.num_changes "
            "from runs join attempts on run_id = runs.id"
        ).fetchall()
    assert found == [(False, 0, 0)]
