"""Canned answers of the API: runs in the states that a page must be able to show."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from lagoon.config import RunConfig
from lagoon.controls import Controlled, in_words
from lagoon.environments import ENVIRONMENTS
from lagoon.methods import METHODS
from lagoon.metrics import CATALOGUE, LOSS
from lagoon.status import RunStatus

Json = dict[str, Any]
BEGAN = datetime(2026, 8, 3, 9, 30, tzinfo=UTC)

GRPO = {"method": {"name": "grpo"}, "environment": {"name": "calculator"}}
ES = {"method": {"name": "es"}, "environment": {"name": "sudoku4"}}


def iso(seconds: float) -> str:
    """A moment ``seconds`` after everything began."""
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def resolved(config: Json) -> Json:
    """A configuration with its defaults."""
    return RunConfig.model_validate(config).model_dump(mode="json")


def attempt(status: str) -> Json:
    """The first attempt of a run."""
    return {
        "number": 1,
        "is_restart": False,
        "resumed_step": None,
        "status": status,
        "submitted_at": iso(2),
        "started_at": iso(20),
        "ended_at": None,
        "reason": "",
        "trajectories": 0,
        "activity": None,
        "idle_seconds": None,
        "stop_heard_at": None,
        "stop_saved_at": None,
        "marker_at": None,
        "num_processes": None,
        "gone_at": iso(80) if RunStatus(status).is_terminal else None,
    }


def run(run_id: str, name: str, status: str, config: Json, **changes: Any) -> Json:
    """A run's detail; ``changes`` override."""
    full = resolved(config)
    detail: Json = {
        "id": run_id,
        "name": name,
        "experiment_id": "e1demo",
        "owner": "admin",
        "status": status,
        "reason": "",
        "priority": "normal",
        "queue_position": None,
        "condition": "",
        "condition_since": None,
        "created_at": iso(0),
        "started_at": iso(20),
        "ended_at": None,
        "step": 0,
        "max_steps": full["budget"]["max_steps"],
        "method": full["method"]["name"],
        "environment": full["environment"]["name"],
        "model": full["model"]["path"],
        "num_attempts": 1,
        "first_heldout_success": None,
        "last_heldout_success": None,
        "last_reward": None,
        "control": "none",
        "cursor": 1,
        "config": full,
        "waiting_for": None,
        "attempts": [attempt(status)],
        "desired": "run",
        "stop_requested_at": None,
        "stop_requested_by": None,
        "is_paused": False,
        "num_changes": 0,
        "first_nan": None,
        "first_mismatch": None,
        "traceback": None,
        "checkpoints": [],
        "parent_run_id": None,
        "parent_step": None,
        "missing": [],
    }
    return {**detail, **changes}


def checkpoint(step: int, **changes: Any) -> Json:
    """Weights that were saved at a step."""
    saved = {
        "id": step,
        "attempt": 1,
        "step": step,
        "path": f"checkpoints/r3f8h2xa-a1/step-{step:06d}",
        "is_final": False,
        "is_best": False,
        "num_bytes": 16_812_432,
    }
    return {**saved, **changes}


def running() -> Json:
    """A GRPO run, 64 of 100 steps done."""
    return run(
        "r7k2m9qd", "grpo-calculator", "running", GRPO, step=64, first_heldout_success=0.312,
        last_heldout_success=0.621, last_reward=0.586, cursor=640,
    )  # fmt: skip


def finished() -> Json:
    """An ES run, done."""
    return run(
        "r3f8h2xa", "es-sudoku4", "finished", ES, step=100, first_heldout_success=0.27,
        last_heldout_success=0.52, last_reward=0.49, cursor=900, created_at=iso(-900),
        started_at=iso(-880), ended_at=iso(-380),
        checkpoints=[checkpoint(90, is_best=True), checkpoint(100, is_final=True)],
    )  # fmt: skip


def queued() -> Json:
    """A run that waits for the running one."""
    return run(
        "r9q4w1zz", "es-waits", "queued", ES, started_at=None, created_at=iso(30),
        reason="Place 1 in the queue. Needs 2 CPUs, 0 free: run grpo-calculator (r7k2m9qd) holds 2 "
        "until it ends.", queue_position=1,
        waiting_for={"run_id": "r7k2m9qd", "name": "grpo-calculator"}, attempts=[],
    )  # fmt: skip


def failed() -> Json:
    """A run whose environment raised."""
    return run(
        "r5b6c7de", "grpo-broken", "failed", GRPO, step=3, ended_at=iso(75), cursor=70,
        reason="The environment calculator raised ZeroDivisionError: division by zero.",
        traceback='Traceback (most recent call last):\n  File "calculator.py", line 88, in step\n'
        "ZeroDivisionError: division by zero",
    )  # fmt: skip


def not_a_number() -> Json:
    """A run whose loss became NaN at step 41."""
    return run(
        "r2n4n4nn", "grpo-diverged", "stopped", {**GRPO, "trainer": {"learning_rate": 0.01}},
        step=60, first_heldout_success=0.312, last_heldout_success=0.06, last_reward="NaN",
        ended_at=iso(220), cursor=600, first_nan={"name": LOSS.name, "step": 41},
        reason="Stopped by admin.", stop_requested_by="admin", stop_requested_at=iso(210),
        checkpoints=[checkpoint(40, is_best=True), checkpoint(60, is_final=True)],
    )  # fmt: skip


def trajectory(index: int, *, split: str = "train", success: bool = True) -> Json:
    """A calculator episode with two tool calls, the second of which fails if not a success."""
    return {
        "trajectory_id": f"t{index}",
        "step": 64 - index // 8,
        "prompt_id": f"p{index}",
        "split": split,
        "reward": 1.0 if success else 0.0,
        "success": success,
        "num_tokens": 28,
        "first_version": 63 - index // 8,
        "completed_version": 64 - index // 8,
        "truncated": not success,
        "seconds": 0.74,
        "turns": [
            {"role": "system", "text": "Use the calculator: write one call at a time, then the "
             "answer.", "seconds": 0.0, "error": None},
            {"role": "user", "text": "(3 + 4) × 6 − 5 < 40 ?", "seconds": 0.0, "error": None},
            {"role": "assistant", "text": "call 3+4", "seconds": 0.02, "error": None},
            {"role": "tool", "text": "7", "seconds": 0.412, "error": None},
            {"role": "assistant", "text": "call 7*6" if success else "call 7*", "seconds": 0.02,
             "error": None},
            {"role": "tool", "text": "42" if success else "", "seconds": 0.033,
             "error": None if success else "cannot read “7*”"},
            {"role": "assistant", "text": "answer 37" if success else "answer", "seconds": 0.02,
             "error": None},
        ],
    }  # fmt: skip


def trajectories() -> list[Json]:
    """A page of them, some held-out, some failures."""
    return [
        trajectory(i, split="heldout" if i % 5 == 4 else "train", success=i % 3 != 1)
        for i in range(24)
    ]


def log_lines(run_id: str) -> list[Json]:
    """Forty lines."""
    if run_id == "r9q4w1zz":
        return []
    return [
        {"n": n, "at": iso(20 + n), "attempt": 1,
         "line": f"INFO driver: step {n} reward {0.2 + n / 100:.3f} in 3.0 s"}
        for n in range(1, 41)
    ]  # fmt: skip


def events(detail: Json) -> list[Json]:
    """From queued to where the run is."""
    moves = [("queued", "starting", "The machine is free."), ("starting", "running",
             "The driver took its first step.")]  # fmt: skip
    status = detail["status"]
    if status == "queued":
        moves = []
    elif status not in ("starting", "running"):
        moves.append(("running", status, detail["reason"] or "Reached 100 steps."))
    found = [_event(1, None, "queued", "Created.", detail["owner"])]
    for n, (before, after, why) in enumerate(moves, start=2):
        found.append(_event(n, before, after, why, None))
    return found


def _event(n: int, before: str | None, after: str, reason: str, by: str | None) -> Json:
    return {"n": n, "at": iso(10 * n), "attempt": 1, "kind": "status", "from": before,
            "to": after, "reason": reason, "by": by}  # fmt: skip


def catalogue() -> Json:
    """Methods, environments and metrics of the installed core."""
    return {
        "methods": [
            {"name": c.model_fields["name"].default, "title": c.title, "paper": c.paper,
             "family": c.family, "help": c.__doc__, "schema": c.model_json_schema()}
            for c in METHODS
        ],
        "environments": [
            {"name": c.model_fields["name"].default, "title": c.title, "help": c.__doc__,
             "missing": "Install it with: make it" if c.extra_package else "",
             "schema": c.model_json_schema()}
            for c in ENVIRONMENTS
        ],
        "metrics": [
            {"name": m.name, "unit": m.unit, "description": m.description,
             "kind": m.kind, "panel": m.panel}
            for m in CATALOGUE.values()
        ],
        "models": [
            {"path": "tiny", "title": "Tiny", "help": "About a million parameters."},
            {"path": "smollm2-135m-instruct", "title": "SmolLM2", "help": "A real small model."},
        ],
    }  # fmt: skip


def presets() -> list[Json]:
    """Two presets."""
    return [
        {"name": "grpo-calculator", "title": "GRPO on the calculator", "yaml": "",
         "description": "Multi-turn tool use with real waits; rises within minutes on two cores.",
         "config": copy.deepcopy(GRPO)},
        {"name": "es-sudoku4", "title": "ES on 4×4 Sudoku", "yaml": "",
         "description": "Evolution strategies on a long-horizon task with a single final reward.",
         "config": copy.deepcopy(ES)},
    ]  # fmt: skip


def thinned() -> list[Json]:
    """What is missing of a run that was thinned by everything."""
    return [
        {"kind": "log_lines", "num_expired": 12_000, "num_dropped": 0},
        {"kind": "points", "num_expired": 0, "num_dropped": 3200},
        {"kind": "trajectories", "num_expired": 1, "num_dropped": 0},
        {"kind": "trajectory_texts", "num_expired": 0, "num_dropped": 412},
    ]


def controls(detail: Json) -> Json:
    """What may be changed of a run: nothing was yet."""
    state = Controlled(RunConfig.model_validate(detail["config"]), detail["is_paused"])
    return {"values": state.values, "changes": []}


def change(number: int, before: Json, after: Json, state: str = "applied", **changes: Any) -> Json:
    """One change of a run, and what became of it."""
    has_effect = state == "applied"
    made = {
        "number": number, "requested_at": iso(100 * number), "requested_by": "admin",
        "before": before, "after": after, "words": in_words(before, after), "state": state,
        "why": "", "attempt": 1 if has_effect else None,
        "version": 20 * number if has_effect else None,
        "applied_at": iso(100 * number + 4) if has_effect else None,
    }  # fmt: skip
    return {**made, **changes}


def storage(runs: list[Json]) -> Json:
    """What the runs take; the newest most."""
    sizes = [
        {"checkpoint_bytes": 2_400_000_000 // n, "trajectory_bytes": 61_000_000 // n,
         "log_bytes": 1_240_000 // n, "metric_bytes": 18_300_000 // n, "spool_bytes": 4_100_000}
        for n in range(1, len(runs) + 1)
    ]  # fmt: skip
    kinds = list(sizes[0]) if sizes else ["checkpoint_bytes"]
    total = {kind: sum(each[kind] for each in sizes) for kind in kinds}
    return {
        "num_runs": len(runs),
        "total": {**total, "total_bytes": sum(total.values())},
        "runs": [
            {"run_id": run["id"], "name": run["name"], "owner": run["owner"],
             "status": run["status"], **each, "total_bytes": sum(each.values())}
            for run, each in zip(runs, sizes, strict=True)
        ],
        "home": {"database_bytes": 412_000_000, "disk_free_bytes": 81_000_000_000,
                 "disk_total_bytes": 250_000_000_000, "checkpoint_quota_bytes": 10_000_000_000},
    }  # fmt: skip


def experiment() -> Json:
    """The demo's experiment."""
    return {
        "id": "e1demo",
        "title": "Two ways to learn",
        "notes": "# Does it learn?\n\nThe same tiny policy, once by **policy gradient** and once "
        "by **evolution**.\n\n- GRPO on the calculator\n- ES on 4×4 Sudoku",
        "owner": "admin",
        "created_at": iso(-1000),
        "num_runs": 5,
    }
