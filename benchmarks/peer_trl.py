"""TRL's side of ``benchmarks.peers``: ``python -m benchmarks.peer_trl JOB STEPS``, in TRL's own
environment (``make peers``).

Tasks, their order, prompts, the tools' waits and the scores are those of a Lagoon run of the same
config and seed. Generation is TRL's own, with the model that it trains. Single turns go the plain
way, prompts in and a reward function; several turns through ``rollout_func``, in lock step, which
is how TRL's own tool loop plays as well. That loop waits for the tools of one trajectory after
those of the other; here all tools of a turn are waited for at once, which is in TRL's favor.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.lockstep import as_rollout, play_in_lock_step
from benchmarks.peer_job import Job, Step, write_steps
from lagoon.config import RunConfig
from lagoon.prompts import task_index
from workers.chat import Chat
from workers.environments import make_environment, num_tasks
from workers.environments.base import Environment, finished
from workers.rollout import EpisodeLimits, EpisodeRequest

Rows = list[dict[str, Any]]


@dataclass(slots=True)
class _Records:
    """What is noted of the step that is going on, and the steps before it."""

    steps: list[Step] = field(default_factory=list)
    waited_seconds: float = 0.0
    num_trajectories: int = 0
    num_sampled: int = 0
    num_tokens_before: int = 0

    def end(self, num_tokens: int) -> None:
        """A step is over; ``num_tokens`` is TRL's own count of prompts and samples so far."""
        num_prompt = int(num_tokens) - self.num_tokens_before - self.num_sampled
        step = Step(
            time.time(), self.waited_seconds, self.num_trajectories, self.num_sampled, num_prompt
        )
        self.steps.append(step)
        self.num_tokens_before = int(num_tokens)
        self.waited_seconds, self.num_trajectories, self.num_sampled = 0.0, 0, 0


class _Ends(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Notes when steps end."""

    def __init__(self, records: _Records) -> None:
        self._records = records

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An optimizer step is over."""
        self._records.end(state.num_input_tokens_seen)


class _Timed(GRPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    """Notes how long a step's batch was waited for."""

    records: _Records

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        started = time.perf_counter()
        batch = super()._generate_and_score_completions(inputs)
        self.records.waited_seconds += time.perf_counter() - started
        return batch


class _Tasks:
    """A run's tasks by position and member, as Lagoon numbers them."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._num_tasks = num_tasks(config.environment, "train")

    def episode(self, position: int, member: int) -> tuple[EpisodeRequest, Environment]:
        """An episode, whose tool waits like that of the Lagoon run's episode of the same name."""
        config = self._config
        assert config.rollout.temperature is not None  # resolved at validation
        index = task_index(config.seed, position, self._num_tasks)
        request = EpisodeRequest.of_training(position, member, index, config.rollout.temperature)
        return request, make_environment(config.environment, "train", index, request.attempt)

    def prompt(self, position: int) -> list[dict[str, str]]:
        """The first messages of a task."""
        messages = finished(self.episode(position, 0)[1].start())
        return [{"role": message.role, "content": message.text} for message in messages]


def main(job_file: Path, steps_file: Path) -> None:
    """Train by a job and write its steps."""
    job, records = Job.read(job_file), _Records()
    config, method = job.config, job.method
    tasks = _Tasks(config)
    positions = range(config.budget.max_steps * method.num_prompts)
    is_single = config.environment.max_turns == 1
    chat = Chat(AutoTokenizer.from_pretrained(job.model_folder, local_files_only=True))
    rows: Rows = [
        {"prompt": tasks.prompt(position) if is_single else str(position), "position": position}
        for position in positions
    ]
    reward: Callable[..., list[float]]
    if is_single:
        rollout, reward = None, partial(_scored, tasks, records)
    else:
        rollout, reward = partial(_played, tasks, records, chat, config), _episode_rewards
    with tempfile.TemporaryDirectory() as folder:
        trainer = _Timed(
            model=str(job.model_folder),
            reward_funcs=_named(reward),
            args=settings(job, folder),
            train_dataset=Dataset.from_list(rows),
            callbacks=[_Ends(records)],
            rollout_func=rollout,
        )
        trainer.records = records
        if set(trainer.eos_token_ids) != set(chat.stop_token_ids):
            raise RuntimeError(f"stops at {trainer.eos_token_ids}, Lagoon {chat.stop_token_ids}")
        trainer.train()
    write_steps(records.steps, steps_file)


def settings(job: Job, folder: str) -> GRPOConfig:
    """TRL's settings that mean what the job's config says."""
    config, trainer = job.config, job.config.trainer
    assert trainer is not None  # a policy gradient has one
    return GRPOConfig(
        output_dir=folder,
        max_steps=config.budget.max_steps,
        per_device_train_batch_size=job.rows_per_pass,
        gradient_accumulation_steps=job.num_trajectories // job.rows_per_pass,
        num_generations=job.method.group_size,
        max_completion_length=config.environment.max_tokens_per_turn,
        temperature=config.rollout.temperature,
        learning_rate=trainer.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=trainer.weight_decay,
        adam_beta1=trainer.beta1,
        adam_beta2=trainer.beta2,
        max_grad_norm=trainer.max_grad_norm,
        beta=0.0,
        loss_type="dapo",  # the mean over all tokens, as aggregation token_mean
        model_init_kwargs={"dtype": config.model.dtype},
        use_cpu=True,
        bf16=config.model.dtype == "bfloat16",
        gradient_checkpointing=False,  # memory suffices, and it costs a second forward pass
        shuffle_dataset=False,
        seed=config.seed,
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )


def _named(reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
    def score(**values: Any) -> list[float]:
        return reward(**values)

    return score


def _scored(
    tasks: _Tasks,
    records: _Records,
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    position: Sequence[int],
    **_: Any,
) -> list[float]:
    """The environment's rewards of single answers."""
    records.num_trajectories += len(completions)
    records.num_sampled += sum(map(len, completion_ids))
    environments = [tasks.episode(where, 0)[1] for where in position]
    texts = [completion[0]["content"] for completion in completions]
    return [
        finished(environment.step(text)).reward
        for environment, text in zip(environments, texts, strict=True)
    ]


def _played(
    tasks: _Tasks,
    records: _Records,
    chat: Chat,
    config: RunConfig,
    prompts: Sequence[str],
    trainer: GRPOTrainer,
) -> dict[str, Any]:
    """A batch of episodes, as TRL wants a rollout: prompts and what came after, with a mask."""
    environment = config.environment
    limits = EpisodeLimits(
        environment.max_turns,
        environment.max_tokens_per_turn,
        config.model.max_length_tokens,
        config.rollout.tool_timeout_seconds,
    )
    group_size = trainer.num_generations
    episodes = [tasks.episode(int(prompt), row % group_size) for row, prompt in enumerate(prompts)]

    def generate(batch: list[list[int]]) -> list[list[int]]:
        """What TRL's own loop of turns calls."""
        answers: list[list[int]] = trainer._generate_single_turn(batch, None, {}, 1)[0]
        return answers

    played = asyncio.run(play_in_lock_step(episodes, chat, limits, generate, time.time))
    records.num_trajectories += len(played)
    records.num_sampled += sum(trajectory.num_actions for trajectory in played)
    return as_rollout(played)


def _episode_rewards(episode_reward: Sequence[float], **_: Any) -> list[float]:
    return list(episode_reward)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
