"""Where the time of a synchronous step goes when the model is tiny and nothing waits.

With so small a model what surrounds the arithmetic decides: vLLM's own work per engine step, the
calls of the trainer, messages between processes. Two arrangements of the machine's two cores are
measured side by side.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cpu_time import ROLES, CpuTime
from benchmarks.frame import Options, Report, progress, run
from benchmarks.peer_arms import COMMON
from benchmarks.study import Cell, events_of, points, step_ends
from lagoon import metrics as m

ARRANGED: Mapping[str, Mapping[str, Any]] = {
    "preset: both cores in turn": {},
    "a core each": {"resources.cpus_per_generator": 0},
}
NUM_STEPS, WARMUP_STEPS, NUM_STEPS_QUICK = 20, 4, 4
PHASES = {
    "generate": m.GENERATE_SECONDS,
    "train": m.TRAIN_SECONDS,
    "publish": m.PUBLISH_SECONDS,
}
HEADER = (
    "arrangement",
    "steps",
    "s a step",
    *(f"{phase}, s" for phase in PHASES),
    "rest, s",
    *(f"CPU of {role}, s" for role in ROLES),
)
NOTES = f"""The preset `grpo-calculator` without waits, 128 trajectories a step, at a learning rate
of 1e-6. With the preset the trainer has both cores when it is its turn; with a core each it has
one, as the engine always has. Medians over repetitions, with the range of what a step takes;
arrangements in turn. Phases are the driver's wall-clock; publishing has the weights' proof in it.
CPU is processor time of a step by process: the engine's is vLLM, the generator's plays the episodes
beside it. {WARMUP_STEPS} steps of warm-up are left out."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A step of one repetition, in seconds."""

    wall: float
    phases: Mapping[str, float]
    cpu: Mapping[str, float]

    @property
    def rest(self) -> float:
        """Wall-clock outside all phases."""
        return self.wall - sum(self.phases.values())


def parts(events: Sequence[Mapping[str, Any]], cpu: CpuTime, warmup_steps: int) -> Parts:
    """The mean step after the warm-up."""
    ended = step_ends(events)
    start, end, count = ended[warmup_steps], ended[max(ended)], max(ended) - warmup_steps
    return Parts(
        (end - start) / count,
        {
            phase: sum(_after(warmup_steps, points(events, metric.name))) / count
            for phase, metric in PHASES.items()
        },
        {role: seconds / count for role, seconds in cpu.between(start, end).items()},
    )


def _after(warmup_steps: int, found: Sequence[tuple[int, float]]) -> list[float]:
    return [value for step, value in found if step > warmup_steps]


def measure(options: Options) -> Report:
    """All arrangements, in turn, as often as asked for."""
    num_steps = NUM_STEPS_QUICK if options.quick else NUM_STEPS
    found: dict[str, list[Parts]] = {name: [] for name in ARRANGED}
    for seed in range(1 if options.quick else options.seeds):
        for name, settings in ARRANGED.items():
            changes = {
                **COMMON,
                "environment.mean_wait_seconds": 0.0,
                "budget.max_steps": WARMUP_STEPS + num_steps,
                **settings,
            }
            with CpuTime(os.getpid()) as cpu:
                events = events_of(Cell("grpo-calculator", seed, changes=tuple(changes.items())))
            found[name].append(parts(events, cpu, WARMUP_STEPS))
            progress(f"{name}, {seed + 1}: {found[name][-1].wall:.2f} s a step")
    return report(found, num_steps)


def report(found: Mapping[str, Sequence[Parts]], num_steps: int) -> Report:
    """The table and the ratio of the arrangements."""
    rows = [_row(name, repeated, num_steps) for name, repeated in found.items()]
    first, last = (statistics.median(each.wall for each in found[name]) for name in ARRANGED)
    figure = f"a step takes {first:.2f} s with the preset, {last:.2f} s with a core each"
    return Report(HEADER, rows, figure, [], NOTES)


def _row(name: str, repeated: Sequence[Parts], num_steps: int) -> list[str]:
    walls = [each.wall for each in repeated]
    return [
        name,
        f"{len(repeated)} × {num_steps}",
        f"{statistics.median(walls):.2f} [{min(walls):.2f}..{max(walls):.2f}]",
        *(_median([each.phases[phase] for each in repeated]) for phase in PHASES),
        _median([each.rest for each in repeated]),
        *(_median([each.cpu[role] for each in repeated]) for role in ROLES),
    ]


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}"


if __name__ == "__main__":
    sys.exit(run("step_time", measure))
