"""A canned queue: two nodes, two holders, runs that wait for different reasons, two restarts."""

from typing import Any

from tests.dashboard.canned import iso

Json = dict[str, Any]


def queue() -> Json:
    """Admin's runs, and one of a user whose runs the viewer may not see."""
    return {
        "items": [
            _item(1, ("r9q4w1zz", "es-waits"), "admin", "high", 4, 2,
                  "Needs 2 GPUs, 1 free: run grpo-calculator (r7k2m9qd) holds 1 until it ends."),
            _item(2, ("r5s33d01", "sweep lr 3e-4"), "admin", "normal", 2, 1,
                  "What is free is kept for run es-waits (r9q4w1zz), which comes before it."),
            _item(3, None, "ada", "normal", 2, 0,
                  "What is free is kept for run es-waits (r9q4w1zz), which comes before it."),
            _item(4, ("r5s33d02", "sweep lr 1e-3"), "admin", "normal", 2, 1,
                  "What is free is kept for run es-waits (r9q4w1zz), which comes before it."),
            _item(5, ("r8b1gg3r", "seventy billion"), "admin", "low", 64, 8,
                  "Needs 8 GPUs, and there are 2 in all: it cannot start on this cluster. Stop it, "
                  "or add nodes."),
        ],
        "paused": [
            _paused(("r5b6c7de", "grpo-broken"), "admin", 65, "Generator 0 failed: its process "
                    "was killed or crashed (is its machine out of memory?)."),
            _paused(None, "ada", 120, ""),
        ],
        "leases": [
            _lease(("r7k2m9qd", "grpo-calculator"), "admin", "running", 4, 1, "node-a"),
            _lease(None, "ada", "failed", 2, 0, "node-b"),
        ],
        "nodes": [
            {"id": "n1", "name": "node-a", "cpus": 8, "gpus": 2, "cpus_free": 4, "gpus_free": 1,
             "seen_at": iso(60)},
            {"id": "n2", "name": "node-b", "cpus": 8, "gpus": 0, "cpus_free": 6, "gpus_free": 0,
             "seen_at": iso(60)},
        ],
    }  # fmt: skip


def empty() -> Json:
    """Ray has not been seen yet, and nobody waits."""
    return {"items": [], "paused": [], "leases": [], "nodes": []}


def item(shown: Json, run_id: str) -> Json:
    """The entry of a run; empty when it does not wait."""
    found: list[Json] = [
        each
        for each in [*shown["items"], *shown["paused"]]
        if each["run"] and each["run"]["run_id"] == run_id
    ]
    return found[0] if found else {}


def move(shown: Json, body: Json) -> None:
    """Do as the API does with a move."""
    moved, other = item(shown, body["run_id"]), item(shown, body["before"] or body["after"])
    items = shown["items"]
    items.remove(moved)
    items.insert(items.index(other) + (body["before"] is None), moved)
    _number(items)


def remove(shown: Json, run_id: str) -> None:
    """Take a run out of the queue."""
    gone = item(shown, run_id)
    next(part for part in (shown["items"], shown["paused"]) if gone in part).remove(gone)
    _number(shown["items"])


def _number(items: list[Json]) -> None:
    for position, each in enumerate(items, 1):
        each["position"] = position


def _item(
    position: int,
    run: tuple[str, str] | None,
    owner: str,
    priority: str,
    cpus: float,
    gpus: float,
    reason: str,
) -> Json:
    return {
        "position": position,
        "run": _reference(run),
        "owner": owner,
        "priority": priority,
        "cpus": cpus,
        "gpus": gpus,
        "num_processes": int(cpus),
        "reason": reason,
        "queued_at": iso(30 + position),
        "may_change": run is not None,
    }


def _paused(run: tuple[str, str] | None, owner: str, seconds: float, reason: str) -> Json:
    return {
        "run": _reference(run),
        "owner": owner,
        "priority": "normal",
        "cpus": 2,
        "gpus": 0,
        "num_processes": 2,
        "reason": reason,
        "restarts_at": iso(seconds),
        "may_change": run is not None,
    }


def _lease(
    run: tuple[str, str] | None, owner: str, status: str, cpus: float, gpus: float, node: str
) -> Json:
    return {
        "run": _reference(run),
        "owner": owner,
        "attempt": 1,
        "status": status,
        "cpus": cpus,
        "gpus": gpus,
        "nodes": [{"node": node, "cpus": cpus, "gpus": gpus}],
        "taken_at": iso(20),
    }


def _reference(run: tuple[str, str] | None) -> Json | None:
    return {"run_id": run[0], "name": run[1]} if run else None
