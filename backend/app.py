"""The API application: what it is made of, and what happens when it starts and stops."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError

from backend import errors, health, logs, maintenance
from backend.accounts import endpoints as accounts
from backend.accounts.bootstrap import ensure_admin, service_token_hash
from backend.attempts import endpoints as attempts
from backend.catalogue import endpoints as catalogue
from backend.clock import Clock, utc_now
from backend.context import Context
from backend.controls import endpoints as controls
from backend.database import Database
from backend.events import endpoints as events
from backend.experiments import endpoints as experiments
from backend.metrics import endpoints as metrics
from backend.middleware import RequestFrame
from backend.queue import CeleryQueue, TaskQueue
from backend.runs import endpoints as runs
from backend.settings import Settings, described
from backend.slots import endpoints as slots
from backend.storage import endpoints as storage
from lagoon import __version__
from lagoon.service_settings import wrong_settings

PREFIX = "/api/v1"
DOMAINS = (
    accounts, catalogue, experiments, runs, controls, metrics, attempts, events, slots, storage
)  # fmt: skip

logger = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    *,
    queue: TaskQueue | None = None,
    clock: Clock = utc_now,
    passwords: PasswordHasher | None = None,
) -> FastAPI:
    """The API. The keyword arguments are seams: tests hand in their own."""
    context = Context(
        settings=settings,
        database=Database(
            settings.database_url.get_secret_value(),
            pool_size=settings.database_pool_size,
            max_overflow=settings.database_pool_size,
            pool_timeout=5,
            pool_pre_ping=True,
        ),
        queue=queue or CeleryQueue(settings.broker_url.get_secret_value()),
        clock=clock,
        passwords=passwords or PasswordHasher(),
        service_token_hash=service_token_hash(settings),
        listening_since=clock(),
    )
    app = FastAPI(
        title="Lagoon",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=_operation_id,
    )
    app.state.context = context
    app.add_middleware(RequestFrame)
    errors.install(app)
    app.include_router(health.router)
    for domain in DOMAINS:
        app.include_router(domain.router, prefix=PREFIX)
    return app


def app_from_environment() -> FastAPI:
    """The API with its settings from LAGOON_… variables (``uvicorn --factory``).

    Ends the process with one line for each setting that is missing or wrong.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        raise SystemExit(wrong_settings("API", error)) from None
    logs.configure()
    return create_app(settings)


def _operation_id(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    for name, value in described(context.settings).items():
        logger.info("%s=%s", name, value)
    try:
        await ensure_admin(context)
    except OperationalError as error:
        # It serves all the same: /readyz says what is missing, and the periodic work goes on.
        logger.warning("the database does not answer yet: %s", type(error.orig).__name__)
    try:
        async with maintenance.running(context):
            yield
    finally:
        context.queue.close()
        await context.database.close()
