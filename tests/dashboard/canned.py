"""Canned answers of the API: runs in the states that a page must be able to show."""

import copy
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from lagoon.config import RunConfig
from lagoon.environments import ENVIRONMENTS
from lagoon.events import encode_float
from lagoon.methods import METHODS
from lagoon.metrics import (
    ALPHA,
    CATALOGUE,
    DRIFT_NORM,
    ENTROPY,
    EVALUATIONS,
    FITNESS,
    GENERATION_HISTOGRAM,
    GRAD_NORM,
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_SUCCESS,
    LEARNING_RATE,
    LEDGER_DROPPED,
    LEDGER_ISSUED,
    LEDGER_TRAINED,
    LOSS,
    MISMATCH,
    POOL_GENERATING,
    POOL_READY,
    POOL_RESERVED,
    RESPONSE_TOKENS,
    REWARD_MEAN,
    REWARD_STD,
    SIGMA,
    STALENESS_COVERAGE,
    STALENESS_GENERATION,
    STALENESS_TOTAL,
    STALENESS_WAITING,
    STALENESS_WORST,
    STEP_SECONDS,
    TOKENS_PER_SECOND,
    TOTAL_HISTOGRAM,
    TOTAL_SAMPLES,
    TOTAL_TOKENS,
    UPDATE_NORM,
    UPDATE_NORM_LAW,
    WAITING_HISTOGRAM,
    WORST_HISTOGRAM,
    Metric,
)
from lagoon.statistics import wilson_interval

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
        "attempts": [
            {
                "number": 1,
                "status": status,
                "submitted_at": iso(2),
                "started_at": iso(20),
                "ended_at": None,
                "reason": "",
            }
        ],
        "stop_requested_at": None,
        "stop_requested_by": None,
        "first_nan": None,
        "traceback": None,
        "checkpoints": [],
    }
    return {**detail, **changes}


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
        checkpoints=[{"step": 100, "path": "checkpoints/r3f8h2xa/step-100", "is_final": True}],
    )  # fmt: skip


def queued() -> Json:
    """A run that waits for the running one."""
    return run(
        "r9q4w1zz", "es-waits", "queued", ES, started_at=None, created_at=iso(30),
        reason="Waiting for run grpo-calculator (r7k2m9qd), which is running.",
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
    )  # fmt: skip


def series_of(run_id: str) -> list[Json]:
    """Everything a canned run has reported."""
    makers = {"r7k2m9qd": _grpo_series, "r3f8h2xa": _es_series, "r2n4n4nn": _nan_series}
    return makers[run_id]() if run_id in makers else []


def _series(
    metric: Metric, values: dict[int, float], labels: Json | None = None, *, start: float = 30
) -> Json:
    steps = sorted(values)
    return {
        "name": metric.name,
        "labels": labels or {},
        "n_total": len(steps),
        "n_shown": len(steps),
        "method": "all",
        "nan_steps": [step for step in steps if math.isnan(values[step])],
        "points": {
            "step": steps,
            "value": [encode_float(values[step]) for step in steps],
            "at": [iso(start + 3.1 * step) for step in steps],
        },
    }


def _heldout(start: float, end: float, last: int, scale: float) -> list[Json]:
    rates = {
        step: start + (end - start) * (1 - math.exp(-step / scale))
        for step in range(0, last + 1, 10)
    }
    bounds = {step: wilson_interval(round(256 * rate), 256) for step, rate in rates.items()}
    return [
        _series(HELDOUT_SUCCESS, rates),
        _series(HELDOUT_LOW, {step: low for step, (low, _) in bounds.items()}),
        _series(HELDOUT_HIGH, {step: high for step, (_, high) in bounds.items()}),
    ]


def _grpo_series(last: int = 64) -> list[Json]:
    noise = random.Random(1)
    steps = range(1, last + 1)

    def wave(start: float, end: float, scale: float, jitter: float) -> dict[int, float]:
        return {
            s: start + (end - start) * (1 - math.exp(-s / scale)) + noise.gauss(0, jitter)
            for s in steps
        }

    zero = dict.fromkeys(steps, 0.0)
    scalars: list[tuple[Metric, dict[int, float]]] = [
        (REWARD_MEAN, wave(0.21, 0.64, 30, 0.03)),
        (REWARD_STD, wave(0.4, 0.3, 40, 0.02)),
        (LOSS, wave(0.01, -0.004, 20, 0.006)),
        (GRAD_NORM, wave(1.4, 0.6, 20, 0.12)),
        (LEARNING_RATE, dict.fromkeys(steps, 1e-4)),
        (ENTROPY, wave(0.9, 0.42, 35, 0.02)),
        (MISMATCH, wave(1.4e-7, 1.5e-7, 10, 1e-8)),
        (RESPONSE_TOKENS, wave(31, 28, 30, 0.6)),
        (STEP_SECONDS, wave(3.1, 2.9, 30, 0.15)),
        (TOKENS_PER_SECOND, wave(1300, 1450, 30, 60)),
        (TOTAL_TOKENS, {s: 3900.0 * s for s in steps}),
        (TOTAL_SAMPLES, {s: 128.0 * s for s in steps}),
        (STALENESS_GENERATION, zero),
        (STALENESS_WAITING, zero),
        (STALENESS_TOTAL, zero),
        (STALENESS_WORST, zero),
        (STALENESS_COVERAGE, dict.fromkeys(steps, 1.0)),
        (POOL_GENERATING, {s: float(16 if s % 2 else 3) for s in steps}),
        (POOL_READY, {s: float(noise.randint(2, 12)) for s in steps}),
        (POOL_RESERVED, dict.fromkeys(steps, 16.0)),
        (LEDGER_TRAINED, {s: 16.0 * s for s in steps}),
    ]
    found = dict(scalars)
    issued = {
        s: found[LEDGER_TRAINED][s]
        + found[POOL_GENERATING][s]
        + found[POOL_READY][s]
        + found[POOL_RESERVED][s]
        + 2
        for s in steps
    }
    return [
        *(_series(metric, values) for metric, values in scalars),
        _series(LEDGER_ISSUED, issued),
        _series(LEDGER_DROPPED, dict.fromkeys(steps, 2.0), {"reason": "environment error"}),
        *_heldout(0.312, 0.66, last, 30),
    ]


def _es_series() -> list[Json]:
    noise = random.Random(2)
    steps = range(1, 101)
    rise = {s: 0.25 + 0.26 * (1 - math.exp(-s / 40)) for s in steps}
    law = 5e-4 * math.sqrt(830_000 / 30)
    scalars: list[tuple[Metric, dict[int, float]]] = [
        (REWARD_MEAN, {s: v + noise.gauss(0, 0.012) for s, v in rise.items()}),
        (SIGMA, dict.fromkeys(steps, 1e-3)),
        (ALPHA, dict.fromkeys(steps, 5e-4)),
        (UPDATE_NORM, {s: law * (1 + noise.gauss(0, 0.004)) for s in steps}),
        (UPDATE_NORM_LAW, dict.fromkeys(steps, law)),
        (DRIFT_NORM, {s: law * math.sqrt(s) for s in steps}),
        (EVALUATIONS, {s: 30.0 * 200 * s for s in steps}),
        (STEP_SECONDS, {s: 4.9 + noise.gauss(0, 0.2) for s in steps}),
        (TOKENS_PER_SECOND, {s: 2600 + noise.gauss(0, 90) for s in steps}),
        (TOTAL_TOKENS, {s: 12_600.0 * s for s in steps}),
    ]
    spread = {"mean": 0.0, "min": -0.09, "max": 0.1}
    fitness = [
        _series(FITNESS, {s: v + off for s, v in rise.items()}, {"stat": name}, start=-850)
        for name, off in spread.items()
    ]
    return [
        *(_series(metric, values, start=-850) for metric, values in scalars),
        *fitness,
        *_heldout(0.27, 0.55, 100, 40),
    ]


def _nan_series() -> list[Json]:
    found = _grpo_series(60)
    for series in found:
        if series["name"] in (LOSS.name, GRAD_NORM.name, REWARD_MEAN.name):
            steps = series["points"]["step"]
            series["nan_steps"] = [step for step in steps if step >= 41]
            values = series["points"]["value"]
            series["points"]["value"] = [
                "NaN" if step >= 41 else value for step, value in zip(steps, values, strict=True)
            ]
    return found


def histogram(run_id: str, name: str, *, stale: bool = False) -> Json:
    """Counts of 50 steps: all at zero, or spread when ``stale``."""
    names = {GENERATION_HISTOGRAM, WAITING_HISTOGRAM, TOTAL_HISTOGRAM, WORST_HISTOGRAM}
    if run_id not in ("r7k2m9qd", "r2n4n4nn") or name not in {metric.name for metric in names}:
        return {"cursor": "1", "items": [], "total": {"counts": {}}}
    size = 128 if name == WORST_HISTOGRAM.name else 3900
    items = []
    total: dict[str, int] = {}
    for step in range(1, 65):
        shares = {0: 1.0}
        if stale:
            mean = min(4.0, step / 10)
            raw = {lag: math.exp(-abs(lag - mean)) for lag in range(8)}
            shares = {lag: value / sum(raw.values()) for lag, value in raw.items()}
        counts = {str(lag): int(size * share) for lag, share in shares.items()}
        items.append({"step": step, "counts": counts})
        for lag, count in counts.items():
            total[lag] = total.get(lag, 0) + count
    return {"cursor": "1", "items": items, "total": {"counts": total}}


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
