"""The worker and the beat inside it live and die together.

``celery worker --beat`` runs beat in a process of its own. A worker whose beat was killed would
look at nothing any more, and say nothing about it; a beat whose worker was killed would go on
beside that of the next one.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from celery.signals import beat_embedded_init, worker_ready
from celery.worker import state

POLL_SECONDS = 1.0
logger = logging.getLogger(__name__)


def connect() -> None:
    """Have both watched from when they start."""
    worker_ready.connect(watch_beat)
    beat_embedded_init.connect(watch_worker)


def watch_beat(sender: Any, **_: Any) -> None:
    """End a worker whose beat ends, so that whoever started it starts both again."""
    beat = sender.controller.beat
    if beat is not None:
        _in_background("watches-beat", lambda: end_after(beat.join))


def watch_worker(**_: Any) -> None:
    """End beat as soon as its worker is gone, however that ended."""
    worker = os.getppid()

    def wait() -> None:
        while os.getppid() == worker:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    _in_background("watches-worker", wait)


def end_after(join: Callable[[], object]) -> None:
    """Ask this process to end when ``join`` returns, unless it is ending already."""
    join()
    if state.should_stop is None and state.should_terminate is None:
        logger.error("beat has ended: this worker ends too, to be started again with a new one")
        os.kill(os.getpid(), signal.SIGTERM)


def _in_background(name: str, work: Callable[[], None]) -> None:
    if any(thread.name == name for thread in threading.enumerate()):
        return  # a worker is ready again after each loss of its broker
    threading.Thread(target=work, name=name, daemon=True).start()
