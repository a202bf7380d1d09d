"""Lagoon beside TRL's GRPO: the same model, tasks, batch, learning rate and token counts.

Targets: on SmolLM2 with single turns at least as many steps/s; on the calculator, whose tool is
slow, asynchronous training at least 4 times the trajectories/s.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.frame import Options, Report, progress, run
from benchmarks.peer_arms import Arm, Stretch, train

TRL = "TRL, GRPOTrainer"
MAX_LENGTH_DIFFERENCE = 0.1
"""Share by which the mean of sampled tokens may differ; beyond, nothing can be compared."""
HEADER = (
    "task",
    "trained by",
    "steps",
    "trajectories a step",
    "prompt tokens",
    "sampled tokens",
    "s waiting for data",
    "s a step",
    "trajectories/s",
    "÷ TRL",
    "target",
)


@dataclass(frozen=True, slots=True)
class Task:
    """One comparison: the first arm is the one that the others are compared with."""

    name: str
    arms: tuple[Arm, ...]
    targets: Mapping[str, float]
    """Least ratio of trajectories/s, by the name of the arm that has to reach it."""


Results = Mapping[str, Sequence[Stretch]]
"""The repetitions of each arm, by its name, in the same order."""


def single_turn() -> list[Task]:
    """SmolLM2 on questions with long prompts and short answers, and the other way round."""
    preset = "grpo-smollm2-reasoning-gym"
    sums = {
        "environment.dataset": "basic_arithmetic",
        "environment.dataset_options": {"min_terms": 2, "max_terms": 2},
        "environment.instruction": "",
        "environment.num_examples": 0,
        "environment.max_tokens_per_turn": 32,
    }
    described = {
        "SmolLM2, names (preset)": {},
        "SmolLM2, sums": sums,
    }
    return [
        Task(
            name,
            (
                Arm(TRL, preset, 2, 1, changes, rows_per_pass=8),
                Arm("Lagoon, grpo", preset, 3, 1, changes),
            ),
            {"Lagoon, grpo": 1.0},
        )
        for name, changes in described.items()
    ]


def tool_waits() -> list[Task]:
    """The tiny model and its calculator, with waits of several lengths and without any.

    Without waits nothing is judged: it shows what vLLM costs with so small a model.
    """
    tasks = []
    for mean_seconds, name, target in (
        (0.3, "calculator, waits of 0.3 s", 4.0),
        (0.0, "calculator, no waits", None),
        (0.05, "calculator, waits of 0.05 s (preset)", 4.0),
    ):
        waits = {"environment.mean_wait_seconds": mean_seconds}
        arms = (
            Arm(TRL, "grpo-calculator", 6, 1, waits, rows_per_pass=128),
            Arm("Lagoon, grpo", "grpo-calculator", 6, 2, waits),
            Arm("Lagoon, async_grpo", "grpo-async-calculator", 24, 8, waits),
        )
        targets = {} if target is None else {"Lagoon, async_grpo": target}
        tasks.append(Task(name, arms, targets))
    return tasks


def quick(task: Task) -> Task:
    """The same task with fewer steps, and of the arms the first and the last."""
    ends = (task.arms[0], task.arms[-1])
    return replace(task, arms=tuple(_quick(arm) for arm in ends))


def _quick(arm: Arm) -> Arm:
    smaller = {"method.num_prompts": 1} if "smollm2" in arm.preset else {}
    return replace(
        arm,
        num_steps=4 if "async" in arm.preset else 1,
        warmup_steps=min(arm.warmup_steps, 4),
        changes={**arm.changes, **smaller},
    )


def measured(
    task: Task, repetitions: int, train_once: Callable[[Arm, int], Stretch] = train
) -> Results:
    """Repetitions of all arms, interleaved; each begins with another arm and has its own seed."""
    found: dict[str, list[Stretch]] = {arm.name: [] for arm in task.arms}
    for number in range(repetitions):
        shift = number % len(task.arms)
        for arm in (*task.arms[shift:], *task.arms[:shift]):
            done = train_once(arm, number)
            progress(
                f"{task.name}, {arm.name}, {number + 1} of {repetitions}: "
                f"{done.seconds / done.num_steps:.2f} s a step"
            )
            found[arm.name].append(done)
    return found


def report(tasks: Sequence[tuple[Task, Results]], notes: str) -> Report:
    """The table, the figure and the judgement of all tasks."""
    rows = [row for task, results in tasks for row in _rows(task, results)]
    missed = [words for task, results in tasks for words in _missed(task, results)]
    figures = [
        f"{task.name}: {name} {_middle(ratios(task, results, name), '{:.2f}')} of TRL's "
        f"trajectories/s (target >= {target:g})"
        for task, results in tasks
        for name, target in task.targets.items()
    ]
    return Report(HEADER, rows, "; ".join(figures), missed, notes)


def ratios(task: Task, results: Results, name: str) -> list[float]:
    """Trajectories/s of an arm over those of the first, repetition by repetition."""
    pairs = zip(results[name], results[task.arms[0].name], strict=True)
    return [ours.trajectories_per_second / theirs.trajectories_per_second for ours, theirs in pairs]


def _missed(task: Task, results: Results) -> list[str]:
    found = []
    for name, target in task.targets.items():
        reached = statistics.median(ratios(task, results, name))
        if reached < target:
            found.append(f"{task.name}: {name} reaches {reached:.2f} of TRL's trajectories/s")
    lengths = {name: _length(stretches) for name, stretches in results.items()}
    theirs = lengths[task.arms[0].name]
    found += [
        f"{task.name}: {name} samples {length:.1f} tokens a trajectory where TRL samples "
        f"{theirs:.1f}, so that they cannot be compared"
        for name, length in lengths.items()
        if abs(length / theirs - 1) > MAX_LENGTH_DIFFERENCE
    ]
    return found


def _rows(task: Task, results: Results) -> list[tuple[str, ...]]:
    return [
        (
            task.name,
            arm.name,
            f"{len(stretches)} × {arm.num_steps}",
            f"{stretches[0].num_trajectories / arm.num_steps:g}",
            f"{statistics.mean(each.prompt_length for each in stretches):.1f}",
            f"{_length(stretches):.1f}",
            _middle([each.waited_seconds / each.num_steps for each in stretches], "{:.2f}"),
            _middle([each.seconds / each.num_steps for each in stretches], "{:.2f}"),
            _middle([each.trajectories_per_second for each in stretches], "{:.1f}"),
            _middle(ratios(task, results, arm.name), "{:.2f}") if arm is not task.arms[0] else "1",
            f">= {task.targets[arm.name]:g}" if arm.name in task.targets else "",
        )
        for arm, stretches in ((arm, results[arm.name]) for arm in task.arms)
    ]


def _length(stretches: Sequence[Stretch]) -> float:
    return statistics.mean(each.sampled_length for each in stretches)


def _middle(values: Sequence[float], form: str) -> str:
    """The median, with the range where there are several."""
    middle = form.format(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} [{form.format(min(values))}..{form.format(max(values))}]"


NOTES = """Arms run one after the other, each in processes of its own; the order turns with every
repetition, which has a seed of its own. Medians over repetitions, with their range; ratios are
taken within a repetition. A step is a whole one, from the end of the one before to its own end:
generation, scores and one update, for Lagoon also publishing the weights, their proof and the
events. Starts and the first steps are left out. Both sides are given the same model folder, tasks
in the same order, batch, float32, temperature 1, most tokens a turn, AdamW, gradient clip, and a
learning rate of 1e-6, which leaves the policy where it is, so that lengths stay comparable; scores
are the environment's. There is one update for each batch, so that TRL computes no
log-probabilities beside those of the update. Both use one installation of torch and transformers,
TRL with the threads that torch takes by itself. TRL generates with the model that it trains, by
`transformers`: {path}"""
SINGLE_TURN_NOTES = NOTES.format(
    path="""its plain way, with a reward function. Its forward passes take 8 trajectories, those of
Lagoon the preset's 2,048 tokens, in which a prompt is computed once for its group. *Names* is the
preset's task, at temperature 1; *sums* has short prompts and long answers."""
)
TOOL_WAITS_NOTES = NOTES.format(
    path="""several turns through its `rollout_func`, in lock step. Its own loop of tools is in lock
step as well, and waits for the tools of one trajectory after those of another; here all tools of a
turn are waited for at once, which is in TRL's favor. Waits are lognormal with sigma 1, drawn per
trajectory and turn from the same seeds. TRL and `grpo` have 128 trajectories in flight,
`async_grpo` the preset's 256, and trains on what is at most about four updates old."""
)


def _part(tasks: Sequence[Task], notes: str, options: Options) -> Report:
    repetitions = 1 if options.quick else options.seeds
    asked = [quick(tasks[-1])] if options.quick else tasks  # the last is the shortest
    return report([(task, measured(task, repetitions)) for task in asked], notes)


PARTS = {
    "single-turn": lambda options: _part(single_turn(), SINGLE_TURN_NOTES, options),
    "tool-waits": lambda options: _part(tool_waits(), TOOL_WAITS_NOTES, options),
}


if __name__ == "__main__":
    sys.exit(run("peers", PARTS))
