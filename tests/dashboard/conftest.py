"""The real API and its Postgres, for the tests that check the dashboard against them."""

from tests.backend.conftest import api, database_url, postgres_url

__all__ = ["api", "database_url", "postgres_url"]
