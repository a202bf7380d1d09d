"""Canned answers of the API: what the runs of ``canned`` have reported."""

import json
import math
import random
from collections.abc import Iterable

from lagoon.events import Event, StepLogged
from lagoon.metrics import (
    ALPHA,
    CATALOGUE,
    DRIFT_LOGPROB_ABS,
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
    POOL_GENERATING,
    POOL_READY,
    POOL_RESERVED,
    RESPONSE_TOKENS,
    REWARD_MEAN,
    REWARD_STD,
    SIGMA,
    SPAN_HISTOGRAM,
    STALENESS_COVERAGE,
    STALENESS_GENERATION,
    STALENESS_MISSING,
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
from lagoon.points import encode_float
from lagoon.statistics import wilson_interval
from tests.dashboard.canned import Json, iso


def series_of(run_id: str) -> list[Json]:
    """Everything a canned run has reported."""
    makers = {"r7k2m9qd": _grpo_series, "r3f8h2xa": _es_series, "r2n4n4nn": _nan_series}
    return makers[run_id]() if run_id in makers else []


def one_series(
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


def beginning(series: Json, first_step: int) -> Json:
    """As the API answers from a step on."""
    points = series["points"]
    kept = [at for at, step in enumerate(points["step"]) if step >= first_step]
    left = {name: [values[at] for at in kept] for name, values in points.items()}
    return {**series, "n_total": len(kept), "n_shown": len(kept), "points": left}


def thinned(series: Json, max_points: int) -> Json:
    """As the API answers with more points than were asked for: the extremes of ranges of steps."""
    points = series["points"]
    rows = list(zip(points["step"], points["value"], points["at"], strict=True))
    low, width = rows[0][0], rows[-1][0] - rows[0][0] + 1
    ranges: dict[int, list[tuple[int, float, str]]] = {}
    for row in rows:
        ranges.setdefault((row[0] - low) * (max_points // 4) // width, []).append(row)
    kept = {
        row
        for each in ranges.values()
        for row in (
            each[0],
            each[-1],
            min(each, key=lambda row: row[1]),
            max(each, key=lambda row: row[1]),
        )
    }
    step, value, at = map(list, zip(*sorted(kept), strict=True))
    shown = {"step": step, "value": value, "at": at}
    return {**series, "method": "minmax", "n_shown": len(step), "points": shown}


def reported(events: Iterable[Event]) -> list[Json]:
    """The series that the API makes of a driver's events."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for event in events:
        if isinstance(event, StepLogged):
            for point in event.points:
                key = (point.name, json.dumps(point.labels))
                found.setdefault(key, {})[event.step] = point.value
    return [
        one_series(CATALOGUE[name], values, json.loads(labels))
        for (name, labels), values in found.items()
    ]


def _heldout(start: float, end: float, last: int, scale: float) -> list[Json]:
    rates = {
        step: start + (end - start) * (1 - math.exp(-step / scale))
        for step in range(0, last + 1, 10)
    }
    bounds = {step: wilson_interval(round(256 * rate), 256) for step, rate in rates.items()}
    return [
        one_series(HELDOUT_SUCCESS, rates),
        one_series(HELDOUT_LOW, {step: low for step, (low, _) in bounds.items()}),
        one_series(HELDOUT_HIGH, {step: high for step, (_, high) in bounds.items()}),
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
        (DRIFT_LOGPROB_ABS, wave(1.4e-7, 1.5e-7, 10, 1e-8)),
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
        (STALENESS_MISSING, zero),
        (POOL_GENERATING, zero),
        (POOL_READY, zero),
        (POOL_RESERVED, dict.fromkeys(steps, 16.0)),
        (LEDGER_TRAINED, {s: 16.0 * (s - 1) for s in steps}),
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
        *(one_series(metric, values) for metric, values in scalars),
        one_series(LEDGER_ISSUED, issued),
        one_series(LEDGER_DROPPED, dict.fromkeys(steps, 2.0), {"reason": "environment error"}),
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
        one_series(FITNESS, {s: v + off for s, v in rise.items()}, {"stat": name}, start=-850)
        for name, off in spread.items()
    ]
    return [
        *(one_series(metric, values, start=-850) for metric, values in scalars),
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
    by_token = {GENERATION_HISTOGRAM.name, WAITING_HISTOGRAM.name, TOTAL_HISTOGRAM.name}
    by_trajectory = {WORST_HISTOGRAM.name, SPAN_HISTOGRAM.name}
    if run_id not in ("r7k2m9qd", "r2n4n4nn") or name not in by_token | by_trajectory:
        return {"cursor": "1", "items": [], "total": {"counts": {}}}
    size = 128 if name in by_trajectory else 3900
    least = 1 if name == SPAN_HISTOGRAM.name else 0
    items = []
    total: dict[str, int] = {}
    for step in range(1, 65):
        shares = {0: 1.0}
        if stale:
            mean = min(4.0, step / 10)
            raw = {lag: math.exp(-abs(lag - mean)) for lag in range(8)}
            shares = {lag: value / sum(raw.values()) for lag, value in raw.items()}
        counts = {str(least + lag): int(size * share) for lag, share in shares.items()}
        items.append({"step": step, "first_step": step, "counts": counts})
        for lag, count in counts.items():
            total[lag] = total.get(lag, 0) + count
    return {"cursor": "1", "items": items, "total": {"counts": total}}
