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
