"""Real processes that carry an attempt's mark, for tests of who is ended."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.processes import wait_until
from lagoon.proc import command_line, environment
from workers.remains import HOME, MARK

TEST_HOME = Path("/nowhere/lagoon")


@contextmanager
def sleeping(attempt_id: str | None, home: Path = TEST_HOME) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, with the mark of ``attempt_id``, or with none; gone at the end."""
    given = {name: value for name, value in os.environ.items() if name != MARK}
    if attempt_id is not None:
        given |= {MARK: attempt_id, HOME: str(home)}
    process = subprocess.Popen(["sleep", "60"], env=given)
    try:
        # It can be seen a moment after it was started.
        assert wait_until(lambda: b"sleep" in command_line(process.pid), 10)
        assert wait_until(lambda: bool(environment(process.pid)), 10)
        yield process
    finally:
        process.kill()
        process.wait()
