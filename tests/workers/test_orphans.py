import os
import select
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from workers.orphans import end_with_parent

PARENT = """
import multiprocessing, os, sys, time
from tests.workers.test_orphans import child
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    reader, writer = context.Pipe(duplex=False)
    context.Process(target=child, args=(writer,)).start()
    print(reader.recv(), flush=True)
    time.sleep(60)
"""


def child(writer: Connection) -> None:
    end_with_parent()
    writer.send(os.getpid())
    signal.pause()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_process_whose_parent_is_killed_ends_too(tmp_path: Path, start: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, str(script), start],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    ended = os.pidfd_open(pid)
    parent.kill()
    parent.communicate()
    assert wait_for_end(ended, seconds=20)
    os.close(ended)


def wait_for_end(pidfd: int, seconds: float) -> bool:
    """A pidfd becomes readable when its process ends."""
    return bool(select.select([pidfd], [], [], seconds)[0])
