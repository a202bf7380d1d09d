"""Real processes that carry an attempt's mark, for tests of who is ended."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from workers.remains import MARK


@contextmanager
def sleeping(attempt_id: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, with the mark of ``attempt_id``, or with none; gone at the end."""
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    if attempt_id is not None:
        environment[MARK] = attempt_id
    process = subprocess.Popen(["sleep", "60"], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
