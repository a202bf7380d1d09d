"""Where the processes of a run fit: what nodes have, what is taken of it, what is free.

GPUs are counted one by one, as Ray does: a process that asks for several gets whole ones, and one
that asks for a share below 1 gets it of a single GPU. Two shares of 0.6 need two GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DIGITS = 4
"""Ray counts resources in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster and what it has in all."""

    id: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run and what it asks for. A process is never split over nodes."""

    name: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a node: CPUs, and the free share of each GPU, smallest first."""

    cpus: float
    gpus: tuple[float, ...]

    def less(self, cpus: float, gpus: float) -> Room | None:
        """What is left beside a process that asks for so much; None when it does not fit."""
        left_cpus, left_gpus = round(self.cpus - cpus, DIGITS), _less_gpus(self.gpus, gpus)
        return None if left_cpus < 0 or left_gpus is None else Room(left_cpus, left_gpus)

    def taken(self, cpus: float, gpus: float) -> Room:
        """What is left beside a process that is there already, whether it fits by our count or not.

        Ray may have put shares of GPUs together in another way, and a node may have shrunk.
        """
        left = self.less(cpus, gpus)
        if left is not None:
            return left
        shares = []
        for share in reversed(self.gpus):
            part = min(share, gpus)
            gpus = round(gpus - part, DIGITS)
            shares.append(round(share - part, DIGITS))
        return Room(max(0.0, round(self.cpus - cpus, DIGITS)), tuple(sorted(shares)))


def room(node: Node) -> Room:
    """A node with nothing on it."""
    return Room(node.cpus, (1.0,) * int(node.gpus))


def processes_of(config: Mapping[str, Any]) -> tuple[Process, ...]:
    """The processes of a run that ask for resources, from its resolved configuration as JSON.

    The driver asks for none: it waits for the others almost all of its time.
    """
    each, trainer = config["resources"], config["trainer"]
    cpus, gpus = each["cpus_per_generator"], each["gpus_per_generator"]
    count = config["rollout"]["num_generators"]
    found = [Process(f"generator {index}", cpus, gpus) for index in range(count)]
    if trainer is not None:
        found.append(Process("trainer", trainer["cpus"], trainer["gpus"]))
    return tuple(found)


def placed(processes: Sequence[Process], rooms: Mapping[str, Room]) -> tuple[str, ...] | None:
    """A node for each process so that all fit at once; None when there is no such way.

    The fullest node that takes them all is preferred, so that large gaps stay; else as few nodes
    as come out of filling the emptiest ones first. The search is exhaustive.
    """
    kinds: dict[tuple[float, float], list[int]] = {}
    for index, process in enumerate(processes):
        kinds.setdefault((process.cpus, process.gpus), []).append(index)
    # The most numerous kind last: it is the one that needs no search.
    ordered = sorted(kinds.items(), key=lambda kind: (len(kind[1]), kind[0]))
    fullest_first = sorted(rooms, key=lambda id: (sum(rooms[id].gpus), rooms[id].cpus, id))
    choices = [{id: rooms[id]} for id in fullest_first]
    choices.append({id: rooms[id] for id in reversed(fullest_first)})
    for choice in choices:
        found = _spread(ordered, choice)
        if found is not None:
            return tuple(found[index] for index in range(len(processes)))
    return None


def fits(process: Process, rooms: Iterable[Room]) -> bool:
    """Whether one of the nodes takes the process."""
    return any(each.less(process.cpus, process.gpus) is not None for each in rooms)


_Kind = tuple[tuple[float, float], list[int]]
"""Equal processes: what each asks for, and which they are."""


def _spread(kinds: Sequence[_Kind], rooms: dict[str, Room]) -> dict[int, str] | None:
    """Try every node for each process of all kinds but the last, which fills what they leave."""
    if not kinds:
        return {}
    ((cpus, gpus), indices), *others = kinds
    if not others:
        return _filled(cpus, gpus, indices, rooms)
    rest = [((cpus, gpus), indices[1:])] if len(indices) > 1 else []
    for id, free in rooms.items():
        left = free.less(cpus, gpus)
        found = _spread([*rest, *others], rooms | {id: left}) if left is not None else None
        if found is not None:
            return {indices[0]: id} | found
    return None


def _filled(
    cpus: float, gpus: float, indices: Sequence[int], rooms: Mapping[str, Room]
) -> dict[int, str] | None:
    """Equal processes, one node after the other filled to its brim: no way takes more of them."""
    found: dict[int, str] = {}
    remaining = list(indices)
    for id, free in rooms.items():
        left: Room | None = free
        while remaining and (left := left.less(cpus, gpus) if left else None) is not None:
            found[remaining.pop(0)] = id
    return None if remaining else found


def _less_gpus(shares: tuple[float, ...], asked: float) -> tuple[float, ...] | None:
    left = list(shares)
    if asked >= 1:
        count = int(asked)
        if left.count(1.0) < count:
            return None
        return tuple(sorted([*left[: len(left) - count], *[0.0] * count]))
    if asked > 0:
        tightest = min((share for share in left if share >= asked), default=None)
        if tightest is None:
            return None
        left[left.index(tightest)] = round(tightest - asked, DIGITS)
    return tuple(sorted(left))
