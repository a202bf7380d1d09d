"""``lagoon train``: a run without any platform, by the same driver."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from lagoon.config import RunConfig
from lagoon.events import RunEnded
from workers.assignment import Assignment
from workers.driver import LOG_FORMAT, run_to_end
from workers.resuming import FROM_THE_START, Candidates
from workers.settings import own_home
from workers.sink import JsonlSink, Sink
from workers.stops import StopSwitch

Run = Callable[[Assignment, Sink, StopSwitch, Path, Path], RunEnded]


def train_standalone(
    config: RunConfig,
    output: Path,
    home: Path | None = None,
    candidates: Candidates = FROM_THE_START,
    run: Run = run_to_end,
) -> int:
    """Run a config without any platform: events and weights go below ``output``.

    What happens is said on standard error, and last of all the outcome with its reason. Returns 0
    when the run finished or was stopped, 1 when it failed. Raises ``FileExistsError`` when
    ``output`` holds the events of another run, with nothing changed.
    """
    home = home or own_home()
    sink = JsonlSink(output / "events.jsonl")
    try:
        (output / "config.json").write_text(config.model_dump_json(indent=2), encoding="utf-8")
        with _log_on_stderr(), _home_for_children(home):
            given = Assignment(config, candidates)
            ended = run(given, sink, StopSwitch(), output / "checkpoints", home)
    finally:
        sink.close()
    sys.stderr.write(": ".join(filter(None, (ended.outcome, ended.reason))) + "\n")
    return 1 if ended.outcome == "failed" else 0


@contextlib.contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Show the log of Lagoon's own modules from INFO on, and warnings of all others."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    ours = [logging.getLogger(name) for name in ("lagoon", "workers")]
    levels = [each.level for each in ours]
    logging.getLogger().addHandler(handler)
    for each in ours:
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        for each, level in zip(ours, levels, strict=True):
            each.setLevel(level)


@contextlib.contextmanager
def _home_for_children(home: Path) -> Iterator[None]:
    """All processes that are started meanwhile carry LAGOON_HOME, whoever chose the home."""
    before = os.environ.get("LAGOON_HOME")
    os.environ["LAGOON_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LAGOON_HOME"]
        else:
            os.environ["LAGOON_HOME"] = before
