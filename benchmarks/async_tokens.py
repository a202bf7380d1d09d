"""Tokens/s of an asynchronous run's generators, beside bare vLLM on the same requests.

Target: at least 0.9 of bare vLLM while the trainer is idle. With the trainer at work, which takes
cores from the engine and puts new weights into it, the ratio is reported without a target.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.frame import Options, Report, progress, run
from benchmarks.peer_arms import Arm, Stretch, train
from benchmarks.study import folder_of, resolved
from benchmarks.throughput import Compared, compare

PRESET = "grpo-async-calculator"
MIN_RATIO = 0.9
NUM_EPISODES, NUM_EPISODES_QUICK = 4096, 512
ARM = Arm("Lagoon, async_grpo", PRESET, num_steps=24, warmup_steps=8, changes={})
ARM_QUICK = Arm("Lagoon, async_grpo", PRESET, num_steps=4, warmup_steps=4, changes={})
HEADER = ("what", "measured", "range", "target")
NOTES = f"""The preset `{PRESET}`, whose calculator answers after 0.05 s in the mean, with 256
episodes in flight. Trainer idle: episodes through the driver's `Generators` and a generator actor
on Ray; then exactly the requests that these made (the same prompts, as many tokens, the same waits
for tools, the same number of episodes at once) from an engine with the same arguments and a client
without Lagoon and Ray. All engines are warm; one works at a time, in turn. Each time includes the
end, when fewer and fewer episodes are left. Trainer at work: tokens of the trajectories that were
trained on, over {ARM.num_steps} steps of a run after {ARM.warmup_steps}, which has no such end;
its learning rate is 1e-6, so that its episodes are like the others."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured."""

    alone: Sequence[Compared]
    training: Sequence[Stretch]

    @property
    def bare(self) -> list[float]:
        """Tokens/s of bare vLLM."""
        return [each.num_tokens / each.bare_seconds[0] for each in self.alone]

    @property
    def ratios(self) -> list[float]:
        """Generators without a trainer to bare vLLM."""
        return [each.ratios[0] for each in self.alone]


def measure(options: Options) -> Report:
    """Both ways, one after the other."""
    config = resolved(ARM.cell(0))
    arm, repetitions = (ARM_QUICK, 1) if options.quick else (ARM, options.seeds)
    alone = compare(
        config,
        folder_of(config.model.path),
        num_episodes=NUM_EPISODES_QUICK if options.quick else NUM_EPISODES,
        repetitions=repetitions,
        stock=False,
    )
    training = []
    for seed in range(repetitions):
        training.append(train(arm, seed))
        speed = training[-1].num_sampled / training[-1].seconds
        progress(f"training {seed + 1} of {repetitions}: {speed:.0f} tokens/s")
    return report(Measured(alone, training))


def report(measured: Measured) -> Report:
    """The table, the figure and the judgement."""
    alone = [each.num_tokens / each.generator_seconds for each in measured.alone]
    training = [each.num_sampled / each.seconds for each in measured.training]
    bare = statistics.median(measured.bare)
    shares = [speed / bare for speed in training]
    ratio = statistics.median(measured.ratios)
    rows = [
        ("bare vLLM, tokens/s", *_middle(measured.bare, "{:.0f}"), ""),
        ("generators, trainer idle, tokens/s", *_middle(alone, "{:.0f}"), ""),
        ("÷ bare vLLM", *_middle(measured.ratios, "{:.3f}"), f">= {MIN_RATIO:g}"),
        ("generators, trainer at work, tokens/s", *_middle(training, "{:.0f}"), ""),
        ("÷ bare vLLM", *_middle(shares, "{:.3f}"), ""),
    ]
    missed = [] if ratio >= MIN_RATIO else [f"generators make only {ratio:.3f} of bare vLLM"]
    figure = (
        f"generators {ratio:.2f} of bare vLLM's tokens/s with the trainer idle (target >= "
        f"{MIN_RATIO:g}), {statistics.median(shares):.2f} with it at work"
    )
    return Report(HEADER, rows, figure, missed, NOTES)


def _middle(values: Sequence[float], form: str) -> tuple[str, str]:
    middle = form.format(statistics.median(values))
    return middle, f"{form.format(min(values))} to {form.format(max(values))}"


if __name__ == "__main__":
    sys.exit(run("async_tokens", measure))
