"""The way to the workers: tasks by name, through the broker. No worker code is imported."""

from __future__ import annotations

from typing import Any, Protocol

from celery import Celery

SUBMIT = "workers.submit"

TIMEOUT_SECONDS = 3


class TaskQueue(Protocol):
    """Something that takes tasks. Sending and pinging block, and raise when the broker is away."""

    def send(self, task: str, args: list[Any]) -> None:
        """Hand a task to the workers."""

    def ping(self) -> None:
        """Return when the broker answers."""

    def close(self) -> None:
        """Let go of connections."""


class CeleryQueue:
    """The producing side of Celery."""

    def __init__(self, broker_url: str) -> None:
        self._app = Celery("backend", broker=broker_url, set_as_current=False)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_timeout=TIMEOUT_SECONDS,
            broker_transport_options={
                "socket_timeout": TIMEOUT_SECONDS,
                "socket_connect_timeout": TIMEOUT_SECONDS,
            },
        )

    def send(self, task: str, args: list[Any]) -> None:
        """Send once; the outbox is what retries."""
        self._app.send_task(task, args=args, retry=False)

    def ping(self) -> None:
        """Connect and disconnect."""
        with self._app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the pool of connections."""
        self._app.close()
