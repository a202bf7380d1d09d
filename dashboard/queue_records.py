"""The shapes of what the API answers about the queue, as the dashboard reads them."""

from typing import TypedDict

from dashboard.records import RunReference


class Asking(TypedDict):
    """A run that is to start. ``run`` is None when it is not the viewer's to see."""

    run: RunReference | None
    owner: str
    priority: str
    cpus: float
    gpus: float
    num_processes: int
    reason: str
    may_change: bool


class QueueItem(Asking):
    """A run that waits, at its place."""

    position: int
    queued_at: str


class Paused(Asking):
    """A run that starts again by itself, and joins the queue then. Its reason is the failure."""

    restarts_at: str


class NodeShare(TypedDict):
    """What is held on one node."""

    node: str
    cpus: float
    gpus: float


class LeaseRecord(TypedDict):
    """What an attempt holds."""

    run: RunReference | None
    owner: str
    attempt: int
    status: str
    cpus: float
    gpus: float
    nodes: list[NodeShare]
    taken_at: str


class NodeRecord(TypedDict):
    """A node of the cluster."""

    id: str
    name: str
    cpus: float
    gpus: float
    cpus_free: float
    gpus_free: float
    seen_at: str


class Queue(TypedDict):
    """Who waits, in order; who restarts when; who holds what; what there is."""

    items: list[QueueItem]
    paused: list[Paused]
    leases: list[LeaseRecord]
    nodes: list[NodeRecord]
