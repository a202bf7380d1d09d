"""Alembic's environment: the database comes from the caller, or from LAGOON_DATABASE_URL."""

import os

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from backend.models import Base


def database_url() -> str:
    url = context.config.attributes.get("database_url") or os.environ.get("LAGOON_DATABASE_URL")
    if not url:
        raise SystemExit("Set LAGOON_DATABASE_URL to the database to migrate.")
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    return parsed.render_as_string(hide_password=False)


def migrate() -> None:
    engine = create_engine(database_url())
    try:
        with engine.connect() as connection:
            context.configure(connection=connection, target_metadata=Base.metadata)
            with context.begin_transaction():
                context.run_migrations()
    finally:
        engine.dispose()


migrate()
