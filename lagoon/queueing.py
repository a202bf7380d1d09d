"""Who starts now and where, and why everybody else waits: one decision over the whole queue.

::

    nodes   ┐             ┌─▶ starts, with a node for each process
    leases  ├──▶ plan ────┤
    waiting ┘             └─▶ waits, with its place and the reason in words

The order: higher priority first; within a priority the user who holds less of the cluster (then who
has fewer runs); among a user's own runs the queue number, which a move deals out anew.

The first run that does not fit keeps a place for itself, so that small runs behind it cannot
overtake it for ever: it is laid out on the cluster as if that were empty, and on the nodes of that
layout others may only use what they leave beside it. What is free there can then only grow until it
starts. A run that fits on no empty cluster keeps nothing and is told so.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from lagoon.placement import DIGITS, Node, Process, Room, fits, placed, room

Priority = Literal["low", "normal", "high"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""Lowest first."""
NEVER_SEEN = "Ray has not been seen yet; nothing starts before it is."
MAX_NAMED_HOLDERS = 2

_REFERENCE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Lease:
    """Slots on a node that a process of a run holds."""

    run_id: str
    owner: str
    node: str
    cpus: float
    gpus: float
    is_ending: bool = False
    """The attempt is over, and its processes may still be there."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run in the queue. Of a user's runs of one priority the lowest number is first."""

    run_id: str
    owner: str
    priority: Priority
    number: int
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a run in the queue."""

    run_id: str
    places: tuple[str, ...] | None
    """A node for each of its processes when it starts now; None when it waits."""
    reason: str
    """Why it waits, with other runs as ``{id}`` (see ``named``); empty when it starts."""

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The runs that the reason is about."""
        return references(self.reason)


def references(reason: str) -> tuple[str, ...]:
    """The ids of the runs that a reason speaks of."""
    return tuple(_REFERENCE.findall(reason))


def named(reason: str, names: Mapping[str, str]) -> str:
    """A reason for a reader who may see the runs in ``names`` and no other."""

    def words(found: re.Match[str]) -> str:
        id = found.group(1)
        return f"run {names[id]} ({id})" if id in names else "another run"

    return _REFERENCE.sub(words, reason)


def plan(
    nodes: Sequence[Node],
    leases: Iterable[Lease],
    waiting: Iterable[Waiting],
    absence: str = NEVER_SEEN,
) -> list[Decision]:
    """A decision for every waiting run, in the order of the queue. Total and deterministic.

    ``absence`` is why all of them wait when there are no nodes. Leases on other nodes than
    ``nodes`` take nothing of these.
    """
    present = {node.id for node in nodes}
    held = sorted(
        (lease for lease in leases if lease.node in present),
        key=lambda lease: (-lease.gpus, -lease.cpus, lease.node, lease.run_id),
    )
    board = _Board({node.id: room(node) for node in nodes})
    for lease in held:
        board.take(lease)
    return [
        board.decided(run) if nodes else Decision(run.run_id, None, absence)
        for run in in_order(nodes, held, waiting)
    ]


def in_order(
    nodes: Sequence[Node], leases: Iterable[Lease], waiting: Iterable[Waiting]
) -> list[Waiting]:
    """The queue. A run that is ahead counts as held by its owner for those behind it."""
    shares = _Shares(sum(node.cpus for node in nodes), sum(node.gpus for node in nodes))
    for lease in leases:
        shares.add(lease.owner, lease.run_id, lease.cpus, lease.gpus)
    lines: dict[Priority, dict[str, deque[Waiting]]] = {level: {} for level in PRIORITIES}
    for run in sorted(waiting, key=lambda run: (run.number, run.run_id)):
        lines[run.priority].setdefault(run.owner, deque()).append(run)
    ordered = []
    for level in reversed(PRIORITIES):
        owners = lines[level]
        while owners:
            first = min(
                (line[0] for line in owners.values()),
                key=lambda run: (*shares.of(run.owner), run.number, run.run_id),
            )
            ordered.append(owners[first.owner].popleft())
            if not owners[first.owner]:
                del owners[first.owner]
            for process in first.processes:
                shares.add(first.owner, first.run_id, process.cpus, process.gpus)
    return ordered


@dataclass(slots=True)
class _Shares:
    """How much of the cluster each user has: the larger of the shares of CPUs and GPUs."""

    cpus: float
    gpus: float
    _held: dict[str, tuple[float, float]] = field(default_factory=dict)
    _runs: dict[str, set[str]] = field(default_factory=dict)

    def add(self, owner: str, run_id: str, cpus: float, gpus: float) -> None:
        before = self._held.get(owner, (0.0, 0.0))
        self._held[owner] = (before[0] + cpus, before[1] + gpus)
        self._runs.setdefault(owner, set()).add(run_id)

    def of(self, owner: str) -> tuple[float, int]:
        """The user's share and number of runs: who has less of it comes first."""
        cpus, gpus = self._held.get(owner, (0.0, 0.0))
        parts = (cpus / self.cpus if self.cpus else 0.0, gpus / self.gpus if self.gpus else 0.0)
        return round(max(parts), DIGITS), len(self._runs.get(owner, ()))


@dataclass(slots=True)
class _Holding:
    """What a run holds on all nodes."""

    cpus: float = 0.0
    gpus: float = 0.0
    is_ending: bool = False


class _Board:
    """What is free while the queue is gone through, and for whom a place is kept."""

    def __init__(self, empty: dict[str, Room]) -> None:
        self._empty = empty
        self._rooms = dict(empty)
        self._held: dict[str, _Holding] = {}
        self._layouts: dict[tuple[Process, ...], tuple[str, ...] | None] = {}
        self._unfit: set[tuple[Process, ...]] = set()
        self._said: dict[tuple[Process, ...], str] = {}
        self._first: Waiting | None = None
        self._kept: dict[str, list[Process]] = {}

    def take(self, lease: Lease) -> None:
        """Slots that are held."""
        self._said.clear()
        self._rooms[lease.node] = self._rooms[lease.node].taken(lease.cpus, lease.gpus)
        holding = self._held.setdefault(lease.run_id, _Holding())
        holding.cpus += lease.cpus
        holding.gpus += lease.gpus
        holding.is_ending = lease.is_ending

    def decided(self, run: Waiting) -> Decision:
        """What becomes of the next run of the queue."""
        places = self._places(run.processes)
        if places is not None:
            for process, node in zip(run.processes, places, strict=True):
                self.take(Lease(run.run_id, run.owner, node, process.cpus, process.gpus))
            return Decision(run.run_id, places, "")
        layout = self._layout(run.processes)
        if layout is not None and self._first is None:
            self._first = run
            for process, node in zip(run.processes, layout, strict=True):
                self._kept.setdefault(node, []).append(process)
        if run.run_id in self._held:  # its own earlier attempt: a reason for it alone
            return Decision(run.run_id, None, self._reason(run, layout))
        if run.processes not in self._said:
            self._said[run.processes] = self._reason(run, layout)
        return Decision(run.run_id, None, self._said[run.processes])

    def _reason(self, run: Waiting, layout: tuple[str, ...] | None) -> str:
        """Why a run waits; the same for all that ask for the same, until more is taken."""
        if layout is None:
            return self._never(run)
        first = self._first
        if first is not None and first is not run and placed(run.processes, self._rooms):
            return f"What is free is kept for {{{first.run_id}}}, which comes before it."
        return self._missing(run)

    def _places(self, processes: tuple[Process, ...]) -> tuple[str, ...] | None:
        """Where the processes go now. What did not fit before does not later: room only shrinks."""
        if processes in self._unfit:
            return None
        places = placed(processes, self._open_rooms())
        if places is None:
            self._unfit.add(processes)
        return places

    def _layout(self, processes: tuple[Process, ...]) -> tuple[str, ...] | None:
        """Where the processes would go on an empty cluster; a sweep's runs all ask the same."""
        if processes not in self._layouts:
            self._layouts[processes] = placed(processes, self._empty)
        return self._layouts[processes]

    def _open_rooms(self) -> dict[str, Room]:
        """What others may use beside the first run that does not fit."""
        rooms = dict(self._rooms)
        for node, processes in self._kept.items():
            left: Room | None = rooms[node]
            for process in processes:
                left = left.less(process.cpus, process.gpus) if left else None
            rooms[node] = left or Room(0.0, ())
        return rooms

    def _never(self, run: Waiting) -> str:
        advice = "it cannot start on this cluster. Stop it, or add nodes."
        for kind, needed, available in self._totals(run, self._empty):
            if needed > available:
                return (
                    f"Needs {_counted(needed, kind)}, and there are {available:g} in all: {advice}"
                )
        process = _homeless(run, self._empty)
        if process is not None:
            asked = _amounts(process.cpus, process.gpus)
            return f"Its {process.name} needs {asked} on one node, and no node has that: {advice}"
        return f"Its processes do not fit on the nodes, even on empty ones: {advice}"

    def _missing(self, run: Waiting) -> str:
        totals = self._totals(run, self._rooms)
        short = [each for each in totals if each[1] > each[2]]
        if short:
            words = ", and ".join(
                f"{_counted(needed, kind)}, {free:g} free" for kind, needed, free in short
            )
            return f"Needs {words}{self._holders(run, [kind for kind, *_ in short])}."
        holders = self._holders(run, [kind for kind, needed, _ in totals if needed])
        process = _homeless(run, self._rooms)
        if process is not None:
            asked = _amounts(process.cpus, process.gpus)
            return f"Its {process.name} needs {asked} free on one node{holders}."
        return f"What is free is spread so that its processes do not fit{holders}."

    def _totals(
        self, run: Waiting, rooms: Mapping[str, Room]
    ) -> tuple[tuple[str, float, float], ...]:
        """Of each kind: what the run needs in all, and what there is."""
        gpus = sum(sum(each.gpus) for each in rooms.values())
        cpus = sum(each.cpus for each in rooms.values())
        return (
            ("GPU", _sum(process.gpus for process in run.processes), round(gpus, DIGITS)),
            ("CPU", _sum(process.cpus for process in run.processes), round(cpus, DIGITS)),
        )

    def _holders(self, run: Waiting, kinds: Sequence[str]) -> str:
        """Who holds slots of these kinds, the largest first."""
        found = []
        for id, held in self._held.items():
            cpus = held.cpus if "CPU" in kinds else 0
            gpus = held.gpus if "GPU" in kinds else 0
            if cpus or gpus:
                amount = _amounts(cpus, gpus) if len(kinds) > 1 else f"{_sum([cpus, gpus]):g}"
                who = "its own earlier attempt" if id == run.run_id else f"{{{id}}}"
                found.append((-gpus, -cpus, id, f"{who} holds {amount}"))
        found.sort()
        parts = [words for *_, words in found[:MAX_NAMED_HOLDERS]]
        if len(found) > MAX_NAMED_HOLDERS:
            parts.append(f"{len(found) - MAX_NAMED_HOLDERS} more hold the rest")
        if not parts:
            return ""
        if len(parts) == 1:
            is_ending = self._held[found[0][2]].is_ending
            return f": {parts[0]} until {'its processes are gone' if is_ending else 'it ends'}"
        return f": {', '.join(parts[:-1])} and {parts[-1]}, until they end"


def _homeless(run: Waiting, rooms: Mapping[str, Room]) -> Process | None:
    """A process that none of the nodes takes by itself."""
    return next((each for each in run.processes if not fits(each, rooms.values())), None)


def _amounts(cpus: float, gpus: float) -> str:
    parts = [_counted(count, kind) for count, kind in ((gpus, "GPU"), (cpus, "CPU")) if count]
    return " and ".join(parts) or "nothing"


def _counted(count: float, kind: str) -> str:
    return f"{round(count, DIGITS):g} {kind}" + ("" if count == 1 else "s")


def _sum(values: Iterable[float]) -> float:
    return round(sum(values), DIGITS)
