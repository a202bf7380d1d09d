"""A worker does not outlive its beat, nor beat its worker."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery.worker import state

from tests.workers.test_orphans import wait_for_end
from workers import beat

WORKER = """
import os, signal
from workers.beat import watch_worker
reader, writer = os.pipe()
if os.fork() == 0:
    watch_worker()
    os.write(writer, str(os.getpid()).encode())
    signal.pause()
print(os.read(reader, 20).decode(), flush=True)
signal.pause()
"""


@pytest.mark.parametrize(("is_ending", "asked"), [(False, [signal.SIGTERM]), (True, [])])
def test_a_worker_ends_after_its_beat_unless_it_is_ending_already(
    monkeypatch: Any, is_ending: bool, asked: list[int]
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    monkeypatch.setattr(state, "should_stop", 0 if is_ending else None)
    beat.end_after(lambda: None)
    assert sent == asked


def test_a_beat_whose_worker_is_killed_ends_too() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert worker.stdout is not None
    ended = os.pidfd_open(int(worker.stdout.readline()))
    worker.kill()
    worker.communicate()
    assert wait_for_end(ended, seconds=20)
    os.close(ended)
