"""The fault suite: a platform whose processes are killed at random moments while runs train.

::

    run ─▶ wait (random) ─▶ kill (random) ─▶ what the platform says of the run ─▶ ... ─▶ run ends
                                                                                       └▶ checks

Every process is killed by its id, and only if this suite's own platform started it; all kinds are
killed about equally often. A run may start again as often as it likes; in the end it must have
finished, with every prompt trained once, every point that its drivers wrote on the surviving
lineage shown, what dead drivers left delivered, and no process left.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from benchmarks.fault_cases import measure_all
from benchmarks.fault_checks import differences, num_points, prompt_faults
from benchmarks.fault_control import CONTROL
from benchmarks.fault_stage import (
    POLL_SECONDS,
    PROMPTS_PER_STEP,
    VERDICT_SECONDS,
    Run,
    Stage,
    config,
)
from benchmarks.fault_stops import STOPS
from benchmarks.fault_targets import TARGETS, Target, kill, of_attempt
from benchmarks.fault_training import TRAINING
from benchmarks.frame import DOCS, Options, Report, progress, run
from benchmarks.stack import running, temporary_home
from cli.client import Api
from cli.output import Refusal
from cli.processes import wait_until
from lagoon.status import RunStatus

NUM_KILLS, NUM_KILLS_QUICK = 50, 2
RELIABILITY = DOCS.parent / "reliability.md"
MAX_PAUSE_SECONDS = 12.0
TRAINING_SHARE = 0.7
"""How often a kill waits until the attempt before it trains: kills at other moments, most of them
while a run starts, are the rest."""
TRAINING_SECONDS = 180.0
SEED = 2026
NOTES = f"""A whole platform in a home of its own, with the tiny model; `grpo` on the calculator, a
checkpoint every two steps. At a random moment (seed {SEED}; {TRAINING_SHARE:.0%} of the kills wait
until the newest attempt has trained a step) one process is killed with SIGKILL:
drivers, trainers, generators, engines, and the platform's own services, Ray's included; PostgreSQL
with SIGQUIT, Valkey with all its data removed. **Answer**: from the kill until the page said what
is true: that the attempt had ended and the next one was queued, or that the driver was silent
(`unresponsive`), or, where no process of the run was killed, until the API answered again. When a
run is over, every value that its drivers wrote on the surviving lineage is compared with what the
API shows, and the prompts that were trained on are counted at every step."""


@dataclass(slots=True)
class Outcome:
    """What became of the kills of one target."""

    answers: list[float] = field(default_factory=list)
    late: int = 0

    @property
    def num_kills(self) -> int:
        """Kills, whether or not they were answered in time."""
        return len(self.answers) + self.late

    def note(self, answer_seconds: float | None) -> None:
        """Count an answer, or None for one that did not come in time."""
        if answer_seconds is None:
            self.late += 1
        else:
            self.answers.append(answer_seconds)


@dataclass(slots=True)
class Tally:
    """Everything that was counted."""

    by_target: dict[str, Outcome] = field(default_factory=lambda: defaultdict(Outcome))
    num_runs: int = 0
    num_attempts: int = 0
    false_failed: list[str] = field(default_factory=list)
    points: int = 0
    differences: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def num_kills(self) -> int:
        """Kills in all."""
        return sum(outcome.num_kills for outcome in self.by_target.values())

    def fewest_killed(self) -> list[Target]:
        """The targets whose turn it is, so that all are killed about equally often."""
        kills = {target.name: self.by_target[target.name].num_kills for target in TARGETS}
        return [target for target in TARGETS if kills[target.name] <= min(kills.values())]


def measure(options: Options) -> Report:
    """Kill until enough was killed, then check and report."""
    order, tally = random.Random(SEED), Tally()
    wanted = NUM_KILLS_QUICK if options.quick else options.seeds
    with temporary_home() as home, running(home) as api:
        while tally.num_kills < wanted:
            _one_run(Stage(home, api), order, tally, wanted)
    return report(tally, wanted)


def _one_run(stage: Stage, order: random.Random, tally: Tally, wanted: int) -> None:
    """Start a run, kill while it is active, and check it when it is over."""
    name = f"faults {tally.num_runs}"
    run_id = stage.start(name, config(tally.num_runs))
    tally.num_runs += 1
    while tally.num_kills < wanted:
        if order.random() < TRAINING_SHARE:
            _await_training(stage, run_id)
        time.sleep(order.uniform(0.0, MAX_PAUSE_SECONDS))
        now = stage.read(run_id)
        if RunStatus(now["status"]).is_terminal:
            break
        attempt_id = f"{run_id}-a{len(now['attempts'])}"
        target = order.choice(tally.fewest_killed())
        # Between two attempts there is nothing of the run that a kill could end.
        loses = target.ends_attempt and bool(of_attempt(attempt_id))
        pid = kill(target, stage.home, attempt_id, order)
        if pid is None:
            continue
        progress(f"{tally.num_kills + 1}: {target.name} ({pid}) at step {now['step']} of {name}")
        answer = _answer_seconds(stage.api, run_id, len(now["attempts"]), loses)
        tally.by_target[target.name].note(answer)
    _check(stage, run_id, tally)


def _await_training(stage: Stage, run_id: str) -> None:
    """Wait until the newest attempt has trained a step of its own, or the run is over."""

    def is_training(now: Run) -> bool:
        attempt = now["attempts"][-1]
        begins = 0 if attempt["number"] == 1 else attempt["resumed_step"]
        has_trained = begins is not None and (now["step"] or 0) > begins
        return has_trained or RunStatus(now["status"]).is_terminal

    stage.until(run_id, is_training, TRAINING_SECONDS)


def _answer_seconds(api: Api, run_id: str, num_attempts: int, loses: bool) -> float | None:
    """How long the platform took to say what is true after a kill; None when it took too long."""
    began = time.monotonic()

    def is_answered() -> bool:
        try:
            now = api.get(f"/runs/{run_id}")
        except (Refusal, httpx.HTTPError):
            return False
        is_said = len(now["attempts"]) > num_attempts or bool(now["condition"])
        return not loses or is_said or RunStatus(now["status"]).is_terminal

    if wait_until(is_answered, VERDICT_SECONDS, poll_seconds=POLL_SECONDS):
        return time.monotonic() - began
    progress(f"  no answer within {VERDICT_SECONDS:.0f} s")
    return None


def _check(stage: Stage, run_id: str, tally: Tally) -> None:
    """Wait for the run's end, and look at all that it left."""
    ended = stage.ended(run_id)
    tally.num_attempts += len(ended["attempts"])
    progress(f"  {ended['status']}: {ended['reason']} ({len(ended['attempts'])} attempts)")
    if ended["status"] != RunStatus.FINISHED:
        tally.false_failed.append(f"{ended['status']}: {ended['reason']}")
    tally.left += stage.left(ended)
    tally.differences += stage.undelivered(ended)
    tally.points += num_points(stage.home, ended)
    tally.differences += differences(stage.api, stage.home, ended)
    wrong = prompt_faults(stage.api, ended, PROMPTS_PER_STEP)
    tally.prompts += [f"{run_id}: steps {wrong}"] if wrong else []


def report(tally: Tally, wanted: int) -> Report:
    """The table, and what was missed."""
    rows = [_row(name, outcome) for name, outcome in sorted(tally.by_target.items())]
    counts = {
        "a run failed, or did not end": tally.false_failed,
        "points were lost, doubled or changed": tally.differences,
        "prompts were skipped or trained twice": tally.prompts,
        "processes were left": tally.left,
        "answers took more than a minute": [
            name for name, outcome in tally.by_target.items() for _ in range(outcome.late)
        ],
    }
    missed = [f"{what}: {'; '.join(found[:5])}" for what, found in counts.items() if found]
    figure = (
        f"{tally.num_kills} kills, {tally.num_runs} runs, {tally.num_attempts} attempts: "
        f"{len(tally.false_failed)} false failed; {tally.points} points compared, "
        f"{len(tally.differences)} series differ; {len(tally.prompts)} runs with prompts skipped "
        f"or trained twice; {len(tally.left)} processes left"
    )
    header = ("killed", "kills", "answer, median", "longest", "later than a minute")
    return Report(header, rows, figure, missed, NOTES)


def _row(name: str, outcome: Outcome) -> Sequence[str]:
    answers = outcome.answers
    middle = f"{statistics.median(answers):.1f} s" if answers else ""
    longest = f"{max(answers):.1f} s" if answers else ""
    return (name, str(outcome.num_kills), middle, longest, str(outcome.late))


if __name__ == "__main__":
    parts = {"kills": measure, "cases": measure_all((*STOPS, *CONTROL, *TRAINING))}
    sys.exit(run("faults", parts, default_seeds=NUM_KILLS, results=RELIABILITY))
