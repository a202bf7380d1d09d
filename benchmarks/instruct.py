"""GRPO on a real instruct model: what it succeeds at before and after, and the curve between.

Targets: it succeeds at 10 to 60 % of the tasks at the sampling temperature before training; greedy
success on at least 200 held-out tasks gains 0.15 with the lower end of the gain's 95 % interval
above 0.05; all of it within an hour on two cores.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from benchmarks.frame import RESULTS, Options, Report, run
from benchmarks.study import ROOT, Cell, completed, events_of, points, resolved, summary
from lagoon.config import RunConfig
from lagoon.metrics import REWARD_MEAN, STEP_SECONDS
from lagoon.statistics import gain_interval
from workers import cluster
from workers.environments import num_tasks
from workers.generators import Generators
from workers.heldout import heldout_indices
from workers.loops.context import supervised
from workers.models.folders import model_folder
from workers.rollout import EpisodeRequest
from workers.settings import own_home

PRESET = "grpo-smollm2-reasoning-gym"
PICTURE = ROOT / "docs" / "images" / "instruct-curve.png"
SAMPLED_BAND = (0.10, 0.60)
MIN_GAIN, MIN_LOW_END, MIN_TASKS, MAX_SECONDS = 0.15, 0.05, 200, 3600.0
GUESSING = (1 / 2 + 1 / 3) / 2
"""Success of naming anybody in the question: two and three people are equally frequent."""
QUICK = (("budget.max_steps", 1), ("trainer.warmup_steps", 0), ("evaluation.num_tasks", 16))
HEADER = ("what", "value", "target")
NOTES = """One run of the preset, with `lagoon train`. Success is on the same held-out tasks every
time, greedy unless it says sampled; the interval of the gain treats the two measurements as
independent. It says nothing of other seeds. Seconds are from the driver's first event to its last.
The log's summary, with the curve and the reward of every step, is kept in
`docs/results/data/instruct.jsonl`."""


def measure(options: Options) -> Report:
    """Measure the run unless it is known; a quick look takes one step and judges nothing."""
    if options.quick:
        row = _measured(Cell(PRESET, 0, changes=QUICK))
        return Report(HEADER, rows(row), "the run finished", [], "One step; nothing is judged.")
    (row,) = completed("instruct", [Cell(PRESET, 0)], _measured)
    if options.write:
        draw(row, PICTURE)
    low, high = _interval(row)
    figure = (
        f"greedy held-out success {row['first']:.3f} → {row['last']:.3f}, gain "
        f"{row['last'] - row['first']:+.3f} (95 % interval {low:+.3f} to {high:+.3f}) "
        f"in {row['seconds'] / 60:.0f} min"
    )
    return Report(HEADER, rows(row), figure, missed(row), NOTES)


def rows(row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table of a run's result."""
    low, high = _interval(row)
    first, last = SAMPLED_BAND
    return [
        ("held-out tasks", str(row["num_tasks"]), f">= {MIN_TASKS}"),
        ("sampled success before", f"{row['sampled_before']:.3f}", f"{first:g} to {last:g}"),
        ("success of guessing a name", f"{GUESSING:.3f}", ""),
        ("success before", f"{row['first']:.3f}", ""),
        ("success after", f"{row['last']:.3f}", ""),
        ("gain", f"{row['last'] - row['first']:+.3f}", f">= {MIN_GAIN:g}"),
        ("95 % interval of the gain", f"{low:+.3f} to {high:+.3f}", f"> {MIN_LOW_END:g}"),
        ("steps", str(row["steps"]), ""),
        ("seconds", f"{row['seconds']:.0f}", f"<= {MAX_SECONDS:.0f}"),
        ("seconds a step, median", f"{row['step_seconds']:.1f}", ""),
    ]


def missed(row: Mapping[str, Any]) -> list[str]:
    """The targets that were missed, in words."""
    gain, (low, _) = row["last"] - row["first"], _interval(row)
    sampled = row["sampled_before"]
    judged = {
        f"only {row['num_tasks']} held-out tasks": row["num_tasks"] < MIN_TASKS,
        f"sampled success before training was {sampled:.3f}": not (
            SAMPLED_BAND[0] <= sampled <= SAMPLED_BAND[1]
        ),
        f"success gained only {gain:+.3f}": gain < MIN_GAIN,
        f"the gain's interval starts at {low:+.3f}": low <= MIN_LOW_END,
        f"it took {row['seconds']:.0f} s": row["seconds"] > MAX_SECONDS,
    }
    return [words for words, is_missed in judged.items() if is_missed]


def draw(row: Mapping[str, Any], file: Path) -> None:
    """The run's curve: reward of every step, greedy success on held-out tasks."""
    import matplotlib  # noqa: PLC0415  slow, and needed for the picture only

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415  likewise

    figure, axes = pyplot.subplots(figsize=(8, 4), dpi=120, layout="constrained")
    axes.plot(*zip(*row["rewards"], strict=True), color="#9db4c0", label="reward, training tasks")
    axes.plot(*zip(*row["curve"], strict=True), "o-", color="#0b6e75", label="greedy, held-out")
    axes.set(xlabel="step", ylabel="success", ylim=(0, 1), title="SmolLM2-135M-Instruct, GRPO")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
    pyplot.close(figure)


def _interval(row: Mapping[str, Any]) -> tuple[float, float]:
    tasks = row["num_tasks"]
    before, after = (round(row[moment] * tasks) for moment in ("first", "last"))
    return gain_interval((before, tasks), (after, tasks))


def _measured(cell: Cell) -> dict[str, Any]:
    sampled_before = sampled_success(resolved(cell))
    events = events_of(cell)
    seconds = sorted(value for _, value in points(events, STEP_SECONDS.name))
    return {
        "sampled_before": sampled_before,
        "rewards": points(events, REWARD_MEAN.name),
        "step_seconds": seconds[len(seconds) // 2],
        **summary(events),
    }


def sampled_success(config: RunConfig) -> float:
    """Success of the untrained model on the run's held-out tasks, at its sampling temperature."""
    cluster.connect()
    try:
        folder = model_folder(config.model.path, own_home(), print)
        handles = cluster.start_generators(config, folder)
        return asyncio.run(_sampled(config, handles))
    finally:
        ray.shutdown()


async def _sampled(config: RunConfig, handles: Sequence[cluster.RemoteGenerator]) -> float:
    assert config.rollout.temperature is not None  # resolved at validation
    temperature = config.rollout.temperature
    available = num_tasks(config.environment, "heldout")
    indices = await heldout_indices(config.environment, config.evaluation.num_tasks, available)
    requests = [
        EpisodeRequest(
            trajectory_id=f"sampled/{index}",
            prompt_id=f"sampled/{index}",
            split="heldout",
            index=index,
            temperature=temperature,
        )
        for index in indices
    ]
    await cluster.all_started(handles, None)
    generators = Generators(handles, lambda: 0)
    generators.trust(range(len(handles)))  # nothing is published here
    pumps = [generators.pump(index) for index in range(len(handles))]
    played = await supervised(generators.play(requests), pumps)
    return sum(trajectory.success for trajectory in played) / len(played)


if __name__ == "__main__":
    sys.exit(run("instruct", measure, default_seeds=1, results=RESULTS))
