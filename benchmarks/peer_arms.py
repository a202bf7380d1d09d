"""The arms of ``benchmarks.peers``: a config trained by Lagoon, or by TRL, and what its steps were.

Both sides are processes of their own, started anew for every repetition: what is measured are
steps after a warm-up, so that no start is in it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer_job import Job, Step, read_steps
from benchmarks.study import ROOT, Cell, events_of, folder_of, points, resolved, step_ends
from lagoon.config import RunConfig
from lagoon.metrics import GENERATE_SECONDS, RESPONSE_TOKENS, TOTAL_SAMPLES
from lagoon.prompts import task_index
from workers.chat import Chat
from workers.environments import make_environment, num_tasks
from workers.environments.base import finished

PEER_PYTHON = ROOT / ".venv" / "peers" / "bin" / "python"
PEER_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",  # it warns of the vLLM beside it, which is not used
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
COMMON = {
    "evaluation.num_tasks": 8,
    "evaluation.every_steps": 100_000,
    "trainer.learning_rate": 1e-6,
    "trainer.warmup_steps": 0,
    "rollout.temperature": 1.0,
}
"""Settings of all arms. The learning rate leaves the policy where it is, or the sides would drift
to answers of different lengths. An evaluation before and one after, neither of them in a step."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train a task."""

    name: str
    preset: str
    num_steps: int
    """Measured, after the warm-up."""
    warmup_steps: int
    changes: Mapping[str, Any]
    """Settings that differ from the preset, by dotted path."""
    rows_per_pass: int = 0
    """Trajectories in a forward pass of TRL; 0 where Lagoon trains."""

    def cell(self, seed: int) -> Cell:
        """The training run of a repetition."""
        last_step = {"budget.max_steps": self.warmup_steps + self.num_steps}
        return Cell(
            self.preset, seed, changes=tuple({**COMMON, **self.changes, **last_step}.items())
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """The measured steps of one repetition of an arm."""

    num_steps: int
    seconds: float
    """From the end of the last step of the warm-up to the end of the last step."""
    waited_seconds: float
    """Of which the trainer waited for data."""
    num_trajectories: int
    num_sampled: int
    """Tokens of the trajectories trained on."""
    num_prompt: int

    @property
    def trajectories_per_second(self) -> float:
        """Trajectories that were trained on."""
        return self.num_trajectories / self.seconds

    @property
    def sampled_length(self) -> float:
        """Sampled tokens of a trajectory."""
        return self.num_sampled / self.num_trajectories

    @property
    def prompt_length(self) -> float:
        """Prompt tokens of a trajectory."""
        return self.num_prompt / self.num_trajectories


def train(arm: Arm, seed: int) -> Stretch:
    """Train an arm once. Raises ``RuntimeError`` with what went wrong."""
    cell = arm.cell(seed)
    config = resolved(cell)
    if arm.rows_per_pass:
        return stretch(_trained_by_trl(config, arm.rows_per_pass), arm.warmup_steps)
    prompts = openings(config, folder_of(config.model.path))
    return stretch(steps_of(events_of(cell), prompts), arm.warmup_steps)


def stretch(steps: Sequence[Step], warmup_steps: int) -> Stretch:
    """The steps after the warm-up, which has at least one step."""
    before, measured = steps[warmup_steps - 1], steps[warmup_steps:]
    return Stretch(
        num_steps=len(measured),
        seconds=measured[-1].ended_at - before.ended_at,
        waited_seconds=sum(step.waited_seconds for step in measured),
        num_trajectories=sum(step.num_trajectories for step in measured),
        num_sampled=sum(step.num_sampled for step in measured),
        num_prompt=sum(step.num_prompt for step in measured),
    )


def steps_of(events: Sequence[Mapping[str, Any]], prompt_length: float) -> list[Step]:
    """The steps of a Lagoon run; a step ends when it is reported, which comes after publishing.

    ``prompt_length`` is the mean over the run's tasks: events do not say it. Sampled tokens are
    those of the trajectories trained on, as on the other side, and not all that were sampled.
    """
    waited, trajectories, length = (
        dict(points(events, metric.name))
        for metric in (GENERATE_SECONDS, TOTAL_SAMPLES, RESPONSE_TOKENS)
    )
    ended = step_ends(events)
    steps, before = [], 0.0
    for number in sorted(ended):
        num_trajectories = int(trajectories[number] - before)
        num_sampled = round(num_trajectories * length[number])
        num_prompt = round(num_trajectories * prompt_length)
        steps.append(Step(ended[number], waited[number], num_trajectories, num_sampled, num_prompt))
        before = trajectories[number]
    return steps


def openings(config: RunConfig, folder: Path) -> float:
    """Mean tokens of the prompts of a run, as its chat template renders them."""
    from transformers import AutoTokenizer  # noqa: PLC0415  slow

    chat = Chat(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    job = Job(config, folder, 0)
    available = num_tasks(config.environment, "train")
    lengths = []
    for position in range(config.budget.max_steps * job.method.num_prompts):
        index = task_index(config.seed, position, available)
        environment = make_environment(config.environment, "train", index)
        lengths.append(len(chat.open(finished(environment.start()))))
    return sum(lengths) / len(lengths)


def _trained_by_trl(config: RunConfig, rows_per_pass: int) -> list[Step]:
    if not PEER_PYTHON.exists():
        raise RuntimeError("TRL is not installed: `make peers` installs it beside Lagoon")
    job = Job(config, folder_of(config.model.path), rows_per_pass)
    with tempfile.TemporaryDirectory(prefix="lagoon-peers-") as folder:
        asked, steps = Path(folder) / "job.json", Path(folder) / "steps.json"
        job.write(asked)
        command = [str(PEER_PYTHON), "-m", "benchmarks.peer_trl", str(asked), str(steps)]
        environment = {**os.environ, **PEER_ENVIRONMENT}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"TRL did not finish: {done.stderr[-2000:]}")
        return read_steps(steps)
