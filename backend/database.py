"""The connection to Postgres: one engine a process, one session and one transaction a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

MIGRATIONS = Path(__file__).parent.parent / "migrations"


class Database:
    """The engine and the sessions made from it.

    Nothing is committed implicitly: a session that is closed without ``commit`` rolls back.
    """

    def __init__(self, url: str, **engine_options: Any) -> None:
        self.engine = create_async_engine(
            url,
            connect_args={"options": "-c timezone=UTC", "connect_timeout": 5},
            **engine_options,
        )
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session whose work is lost unless it is committed."""
        async with self._sessions() as session:
            yield session

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


async def driver_connection(session: AsyncSession) -> psycopg.AsyncConnection[Any]:
    """psycopg's own connection under ``session``, inside the same transaction; for COPY."""
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    if not isinstance(driver, psycopg.AsyncConnection):
        raise TypeError(f"expected a psycopg connection, found {type(driver).__name__}")
    return driver


def alembic_config(database_url: str) -> Config:
    """Alembic's configuration for the migrations beside this package."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["database_url"] = database_url
    return config


def known_versions() -> list[str]:
    """The versions of the tables that this Lagoon knows, oldest first."""
    scripts = ScriptDirectory.from_config(alembic_config(""))
    return [script.revision for script in scripts.walk_revisions()][::-1]


def table_version(database_url: str) -> str | None:
    """The version of a database's tables; None when it has none yet."""
    with psycopg.connect(database_url.replace("+psycopg", "", 1)) as connection:
        found = connection.execute("select to_regclass('alembic_version')").fetchone()
        if found is None or found[0] is None:
            return None
        row = connection.execute("select version_num from alembic_version").fetchone()
    return str(row[0]) if row else None


def upgrade(database_url: str) -> None:
    """Bring the database's tables to the newest version; does nothing when they are."""
    command.upgrade(alembic_config(database_url), "head")
