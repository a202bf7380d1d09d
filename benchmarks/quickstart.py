"""What a newcomer meets: how soon a run trains, what Lagoon costs idle, what it does to vLLM.

Targets: a submitted run trains its first step within 30 s, the idle stack takes less than 2.5 GB,
and a run's generators make at least 0.9 of the tokens/s of bare vLLM on the same requests. A first
start on a machine builds the tiny model before that, once.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.first_step import PRESET, FirstStep, submit
from benchmarks.frame import Options, Report, progress, run
from benchmarks.memory import memory_of
from benchmarks.stack import running, temporary_home
from benchmarks.study import ROOT
from benchmarks.throughput import Compared, compare
from cli.client import Api
from cli.home import Home
from cli.up import STARTING_MODEL
from lagoon.config import RunConfig
from workers.models.recipes import fingerprint

MAX_FIRST_STEP_SECONDS = 30.0
MAX_IDLE_BYTES = 2.5e9
MIN_RATIO = 0.9
SETTLE_SECONDS, SETTLE_SECONDS_QUICK = 10.0, 2.0
"""Wait before memory is read: imports and first looks at Ray are over by the longer one."""
NUM_EPISODES = 4096
NUM_EPISODES_QUICK = 256
Row = tuple[str, ...]
"""What, measured, range, target."""
NOTES = f"""Starts are those of `lagoon up`, with the model there already. The run is the preset
`{PRESET}` without tool waits, submitted through the API to a platform that has just been
started; the first trained step counts when its loss can be read
through the API. Memory is the sum of proportional set sizes (PSS) of all processes of that
platform while nothing runs and nobody looks. Throughput: the preset's episodes through the
driver's `Generators` and a generator actor on Ray, with no trainer; then exactly the requests
that these made (the same prompts, as many tokens, the same number of episodes at once, a turn
asked for when the one before is there) from an engine with the same arguments and a client
without Lagoon and Ray. All engines are warm; one works at a time, in turn. Log-probabilities
are asked for on all sides. The target is for bare vLLM with the scheduler that a run's engine
uses, under which log-probabilities are cheap; vLLM as it comes is compared as well."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured."""

    starts: Sequence[float]
    """Seconds until ``lagoon up`` was ready: in an empty home folder, then with its data."""
    first_steps: Sequence[FirstStep]
    memory: Mapping[str, int]
    """Idle bytes by service."""
    compared: Sequence[Compared]

    @property
    def first_step_seconds(self) -> float:
        """The median over submissions."""
        return statistics.median(item.seconds for item in self.first_steps)

    @property
    def idle_bytes(self) -> int:
        """The whole stack."""
        return sum(self.memory.values())

    @property
    def ratio(self) -> float:
        """The median over repetitions, to bare vLLM with a run's own scheduler."""
        return statistics.median(item.ratios[0] for item in self.compared)


def measure(options: Options) -> Report:
    """Start a platform, measure it, stop it; then measure throughput."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it stops what it started then, too
    repetitions = 1 if options.quick else options.seeds
    config = preset()
    starts: list[float] = []
    with temporary_home() as home:
        if not options.quick:
            with _timed(home, starts):
                pass
        with _timed(home, starts) as api:
            time.sleep(SETTLE_SECONDS_QUICK if options.quick else SETTLE_SECONDS)
            memory = memory_of(home)
            progress(f"idle: {sum(memory.values()) / 1e9:.2f} GB; submitting a run")
            first_steps = [submit(api, config) for _ in range(repetitions)]
            progress(f"first step after {first_steps[0].seconds:.1f} s; stopping the platform")
        compared = compare(
            RunConfig.model_validate(config),
            _model(home),
            num_episodes=NUM_EPISODES_QUICK if options.quick else NUM_EPISODES,
            repetitions=repetitions,
            stock=not options.quick,
        )
    return report(Measured(starts, first_steps, memory, compared))


@contextmanager
def _timed(home: Home, starts: list[float]) -> Iterator[Api]:
    """A platform, with the seconds that it took to start added to ``starts``."""
    progress("starting a platform")
    began = time.monotonic()
    with running(home) as api:
        starts.append(time.monotonic() - began)
        yield api


def preset() -> dict[str, Any]:
    """The run's config: the preset, without waits of its tool."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "presets" / f"{PRESET}.yaml").read_text())
    config["environment"]["mean_wait_seconds"] = 0
    return config


def report(measured: Measured) -> Report:
    """The table, the figure and the judgement."""
    figure = (
        f"first trained step {measured.first_step_seconds:.1f} s after submit "
        f"(target < {MAX_FIRST_STEP_SECONDS:g}); idle stack {_gb(measured.idle_bytes)} "
        f"(target < {_gb(MAX_IDLE_BYTES)}); generators {measured.ratio:.2f} of bare vLLM's "
        f"tokens/s (target >= {MIN_RATIO:g})"
    )
    rows = [
        *_start_rows(measured),
        *_first_step_rows(measured),
        *_memory_rows(measured),
        *_throughput_rows(measured),
    ]
    return Report(("what", "measured", "range", "target"), rows, figure, missed(measured), NOTES)


def missed(measured: Measured) -> list[str]:
    """The targets that were missed, in words."""
    found = []
    if measured.first_step_seconds >= MAX_FIRST_STEP_SECONDS:
        found.append(f"the first trained step took {measured.first_step_seconds:.1f} s")
    if measured.idle_bytes >= MAX_IDLE_BYTES:
        found.append(f"the idle stack takes {_gb(measured.idle_bytes)}")
    if measured.ratio < MIN_RATIO:
        found.append(f"generators make only {measured.ratio:.3f} of bare vLLM's tokens/s")
    return found


def _start_rows(measured: Measured) -> list[Row]:
    names = ("start in an empty home folder", "start with earlier data")
    return [
        (name, f"{seconds:.1f} s", "", "")
        for name, seconds in zip(names, measured.starts, strict=False)
    ]


def _first_step_rows(measured: Measured) -> list[Row]:
    seconds = [item.seconds for item in measured.first_steps]
    target = f"< {MAX_FIRST_STEP_SECONDS:g} s"
    rows: list[Row] = [("submit to first trained step", *_middle(seconds, "{:.1f} s"), target)]
    shared = [
        words
        for words in measured.first_steps[0].phases
        if all(words in item.phases for item in measured.first_steps)
    ]
    for words in shared:
        moments = [item.phases[words] for item in measured.first_steps]
        rows.append((f"  {words}", *_middle(moments, "at {:.1f} s"), ""))
    return rows


def _memory_rows(measured: Measured) -> list[Row]:
    total: Row = ("idle memory (PSS)", _gb(measured.idle_bytes), "", f"< {_gb(MAX_IDLE_BYTES)}")
    return [total, *((f"  {name}", _gb(size), "", "") for name, size in measured.memory.items())]


def _throughput_rows(measured: Measured) -> list[Row]:
    compared = measured.compared
    generators = [item.num_tokens / item.generator_seconds for item in compared]
    rows: list[Row] = [("generators, tokens/s", *_middle(generators, "{:.0f}"), "")]
    for index in range(len(compared[0].bare_seconds)):
        name = ("bare vLLM", "bare vLLM with its own scheduler")[index]
        speeds = [item.num_tokens / item.bare_seconds[index] for item in compared]
        ratios = [item.ratios[index] for item in compared]
        target = "" if index else f">= {MIN_RATIO:g}"
        rows.append((f"{name}, tokens/s", *_middle(speeds, "{:.0f}"), ""))
        rows.append((f"generators ÷ {name}", *_middle(ratios, "{:.3f}"), target))
    return rows


def _middle(values: Sequence[float], form: str) -> tuple[str, str]:
    """The median, and the range where there are several."""
    if len(values) == 1:
        return form.format(values[0]), ""
    spread = f"{form.format(min(values))} to {form.format(max(values))}"
    return form.format(statistics.median(values)), spread


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"


def _model(home: Home) -> Path:
    return home.root / "models" / STARTING_MODEL / fingerprint(STARTING_MODEL)


if __name__ == "__main__":
    sys.exit(run("quickstart", measure))
