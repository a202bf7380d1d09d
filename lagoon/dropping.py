"""What of a run's telemetry goes first when there is no room for all of it.

::

    stage 1  texts of trajectories        4 … 11  every second point of each series, and every
    stage 2  trajectories                         second histogram: a half, a quarter, … 1/256
    stage 3  lines of the log             12      all of these points and histograms
    never    status, changes of settings, checkpoints, the end marker, notices of what was dropped,
             the ledger, with the pool's places: it balances only with all of its terms

Of heartbeats every stage keeps the newest. Lines of the log go before points: they are in the log
of the driver's Ray job, too. A stage is taken over everything, the oldest first, before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol

from lagoon.events import (
    DroppedKind,
    Event,
    HeartbeatLogged,
    HistogramLogged,
    LogLogged,
    StepLogged,
    TrajectoryLogged,
)
from lagoon.metrics import CATALOGUE, PROMPT_PLACES
from lagoon.points import Point

NUM_HALVINGS = 8
"""Stages that halve what is left of each series."""

Dropped = Counter[DroppedKind]
"""How many of each kind were dropped."""

NOUNS: dict[str, tuple[str, str]] = {
    "trajectory_texts": ("trajectory text", "trajectory texts"),
    "trajectories": ("trajectory", "trajectories"),
    "log_lines": ("line of the log", "lines of the log"),
    "points": ("metric point", "metric points"),
    "histograms": ("histogram", "histograms"),
    "checkpoints": ("checkpoint", "checkpoints"),
}
"""One and several of each kind, for people; of checkpoints, which retention alone removes, too."""


class Portion(Protocol):
    """Telemetry that is reduced as a whole: events in a file, for example."""

    @property
    def stage(self) -> int:
        """Stages that it has gone through."""
        ...

    @property
    def num_bytes(self) -> int:
        """The room that it takes."""
        ...

    def advance(self) -> None:
        """Go through the next stage, if that is possible now."""
        ...


def make_room(portions: Sequence[Portion], excess_bytes: int) -> int:
    """Reduce ``portions``, the oldest first, by ``excess_bytes``, and no further than necessary.

    Returns the bytes that are still too many: more than 0 only when all went through all stages, or
    could not.
    """
    for stage in range(NUM_STAGES):
        for portion in portions:
            if excess_bytes <= 0:
                return 0
            if portion.stage == stage:
                before = portion.num_bytes
                portion.advance()
                excess_bytes -= before - portion.num_bytes
    return max(0, excess_bytes)


def reduced(events: Iterable[Event], stage: int) -> tuple[list[Event], Dropped]:
    """Events that went through ``stage`` stages, after one more; and what it dropped."""
    dropped: Dropped = Counter()
    kept = STAGES[stage](_with_one_heartbeat(events), dropped)
    return kept, +dropped


def fully_reduced(events: Iterable[Event]) -> tuple[list[Event], Dropped]:
    """What is never dropped of ``events``; and all else, counted."""
    kept, dropped = list(events), Dropped()
    for stage in range(NUM_STAGES):
        kept, more = reduced(kept, stage)
        dropped += more
    return kept, dropped


def _with_one_heartbeat(events: Iterable[Event]) -> list[Event]:
    kept = list(events)
    heartbeats = [event for event in kept if isinstance(event, HeartbeatLogged)]
    older = {id(event) for event in heartbeats[:-1]}
    return [event for event in kept if id(event) not in older]


def _without_texts(events: list[Event], dropped: Dropped) -> list[Event]:
    return [
        _textless(event, dropped) if isinstance(event, TrajectoryLogged) else event
        for event in events
    ]


def _textless(event: TrajectoryLogged, dropped: Dropped) -> TrajectoryLogged:
    """The roles, times and failures of its turns stay, without a word of theirs."""
    if not any(turn.text or turn.error for turn in event.turns):
        return event
    dropped["trajectory_texts"] += 1
    turns = tuple(
        turn.model_copy(update={"text": "", "error": None if turn.error is None else ""})
        for turn in event.turns
    )
    return event.model_copy(update={"turns": turns})


def _without_trajectories(events: list[Event], dropped: Dropped) -> list[Event]:
    kept: list[Event] = [e for e in events if not isinstance(e, TrajectoryLogged)]
    dropped["trajectories"] += len(events) - len(kept)
    return kept


def _without_log(events: list[Event], dropped: Dropped) -> list[Event]:
    dropped["log_lines"] += sum(len(e.lines) for e in events if isinstance(e, LogLogged))
    return [event for event in events if not isinstance(event, LogLogged)]


def _halved(events: list[Event], dropped: Dropped) -> list[Event]:
    """The first, third, fifth, … of each series, counted from the first of ``events``."""
    seen: Counter[Hashable] = Counter()

    def is_kept(series: Hashable) -> bool:
        seen[series] += 1
        return seen[series] % 2 == 1

    return _thinned(events, is_kept, dropped)


def _without_points(events: list[Event], dropped: Dropped) -> list[Event]:
    return _thinned(events, lambda _: False, dropped)


def _thinned(
    events: list[Event], is_kept: Callable[[Hashable], bool], dropped: Dropped
) -> list[Event]:
    """Points and histograms that ``is_kept``, asked with their series, and those of the ledger."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, HistogramLogged):
            if _is_ledger(event.name) or is_kept(event.name):
                kept.append(event)
            else:
                dropped["histograms"] += 1
        elif isinstance(event, StepLogged):
            points = tuple(p for p in event.points if _is_ledger(p.name) or is_kept(_series(p)))
            dropped["points"] += len(event.points) - len(points)
            if points:
                kept.append(event.model_copy(update={"points": points}))
        else:
            kept.append(event)
    return kept


def _series(point: Point) -> Hashable:
    return point.name, tuple(sorted(point.labels.items()))


def _is_ledger(name: str) -> bool:
    metric = CATALOGUE[name]
    return metric.panel == "ledger" or metric in PROMPT_PLACES.values()


STAGES: tuple[Callable[[list[Event], Dropped], list[Event]], ...] = (
    _without_texts,
    _without_trajectories,
    _without_log,
    *(_halved,) * NUM_HALVINGS,
    _without_points,
)
"""What each stage does, in order."""
NUM_STAGES = len(STAGES)
