"""The log of an evolution run: what every update was made of, so that it can be made again.

Seeds and coefficients are the whole of an update, so the log of a run is small and its weights
follow from it bit by bit: a run that was killed loses the members of one generation at most.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from lagoon.points import Point
from workers.failures import RunFailed
from workers.handles import UpdateReport
from workers.loops.state import LoopState


@dataclass(frozen=True, slots=True)
class Update:
    """One update, and the loop's state after it."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants", extra="forbid")

    state: LoopState
    seeds: tuple[int, ...]
    coefficients: tuple[float, ...]
    """What each member's noise was multiplied by."""
    fitness: tuple[float, ...]
    sigma: float
    alpha: float
    checksum: str
    """SHA-256 of the master weights after the update."""
    points: tuple[Point, ...]
    counts: dict[str, dict[int, int]]
    """What was reported of it, metrics and histograms: the report of an update may not have arrived
    when its driver is killed, so whoever makes it again reports it again."""


def refuse_disagreement(checksums: Sequence[str], version: int) -> None:
    """Raise ``RunFailed`` when the generators hold different weights after the same update."""
    others = [index for index, checksum in enumerate(checksums) if checksum != checksums[0]]
    if others:
        *first, last = map(str, (0, *others))
        raise RunFailed(
            f"Generators {', '.join(first)} and {last} hold different weights after update "
            f"{version}: their members would not belong to one population."
        )


def refuse_other_weights(reports: Sequence[UpdateReport], logged: str, version: int) -> None:
    """Raise ``RunFailed`` when an update that was made again did not give the same weights."""
    if any(report.checksum != logged for report in reports):
        raise RunFailed(
            f"Update {version}, made again from its log, gives other weights than it gave before: "
            "was the log changed, or another version of torch installed? The checkpoint before it "
            "is as it was; resume from that one to evaluate the generations after it anew."
        )


_AS_JSON = TypeAdapter(Update)


def append_update(path: Path, update: Update) -> None:
    """Add an update to the log; it is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(_AS_JSON.dump_json(update) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def updates_after(logs: Sequence[Path], version: int) -> list[Update]:
    """The updates that follow ``version`` without a gap, from the first log that has the next one.

    A log that ends early goes on in a later one with the same weights at its end: its attempt was
    killed while it made logged updates again. A line that was cut short by a kill is left out.
    """
    found: list[Update] = []
    for log in logs:
        known = {update.state.version: update for update in _read(log)}
        if found:
            joint = known.get(found[-1].state.version)
            if joint is None or joint.checksum != found[-1].checksum:
                continue
        while (following := known.get(version + len(found) + 1)) is not None:
            found.append(following)
    return found


def _read(log: Path) -> list[Update]:
    try:
        lines = log.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(_AS_JSON.validate_json(line))
        except ValidationError:
            break  # nothing after it can be trusted
    return found
