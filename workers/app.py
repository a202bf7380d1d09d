"""The Celery app: short, idempotent tasks that talk to Ray and to the API, and nothing else.

Started as ``celery -A workers.app worker --beat``. Neither torch nor Ray is loaded here.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup
from pydantic import ValidationError

from lagoon.service_settings import wrong_settings
from workers import beat
from workers.settings import Settings, described

logger = logging.getLogger(__name__)

# Redis gives a task that was not acknowledged to another worker after this time. Tasks take
# seconds, so a longer one would only delay what a dead worker held.
VISIBILITY_SECONDS = 120


def create_app(settings: Settings) -> Celery:
    """The app with its schedule, for the broker of ``settings``."""
    app = Celery(
        "workers", broker=settings.broker_url.get_secret_value(), include=["workers.tasks"]
    )
    app.conf.update(
        task_ignore_result=True,
        # Every task may run twice, so one whose worker died is simply run again.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_time_limit=60,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": VISIBILITY_SECONDS},
        visibility_timeout=VISIBILITY_SECONDS,
        timezone="UTC",
        beat_schedule={
            "observe": {
                "task": "workers.observe",
                "schedule": settings.observe_seconds,
                # A look that nobody took in time is worth nothing.
                "options": {"expires": 3 * settings.observe_seconds},
            }
        },
    )
    return app


def read_settings() -> Settings:
    """The settings; ends the process with one line for each that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        raise SystemExit(wrong_settings("worker", error)) from None


def log_settings(**_: Any) -> None:
    """Say, when a worker starts, what it was told."""
    for name, value in described(Settings()).items():
        logger.warning("%s=%s", name, value)  # at the level that a quiet worker still shows


celeryd_after_setup.connect(log_settings)
beat.connect()
app = create_app(read_settings())
