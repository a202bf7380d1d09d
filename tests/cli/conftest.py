"""A real Postgres, for the tests that bring the command before the real API."""

from tests.backend.conftest import database_url, postgres_url

__all__ = ["database_url", "postgres_url"]
