"""The tiny model: a small Qwen3 policy, taught the built-in environments by demonstrations.

Its level is set by the difficulty of the tasks: the demonstrations are all correct, and the last
ones are of easier tasks than the environments' defaults.
"""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from lagoon.environments import EnvironmentConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from workers.chat import Chat
from workers.environments import make_environment
from workers.environments.base import finished
from workers.heldout import heldout_indices
from workers.models.playing import play
from workers.models.recipes import Recipe
from workers.models.teaching import Progress, teach
from workers.models.tokenizer import character_tokenizer

LEVELS_OF = (Calculator(mean_wait_seconds=0), Sudoku4())
"""What the model's level is measured on: the defaults, without waits."""
Levels = dict[str, dict[str, float]]
"""By environment: success, greedy and sampled, and on how many tasks."""


def build_tiny(recipe: Recipe, folder: Path, progress: Progress) -> dict[str, Any]:
    """Teach the model, measure it, and save weights and tokenizer to ``folder``.

    Returns the report. The process's threads and random state are left as they were.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(recipe.num_threads)
    try:
        with torch.random.fork_rng(devices=[]):
            return _build(recipe, folder, progress)
    finally:
        torch.set_num_threads(num_threads)


def _build(recipe: Recipe, folder: Path, progress: Progress) -> dict[str, Any]:
    started = time.monotonic()
    tokenizer = character_tokenizer()
    chat = Chat(tokenizer)
    model = untaught(recipe, tokenizer)
    earlier: list[Levels] = []
    loss = teach(
        model,
        chat,
        recipe.schedule,
        seed=recipe.seed,
        progress=progress,
        between_stages=lambda: earlier.append(_levels(model, chat, recipe.num_early_tasks)),
    )
    taught_seconds = time.monotonic() - started
    levels = _levels(model, chat, recipe.num_eval_tasks)
    for environment in LEVELS_OF:
        progress(
            "{}: held-out success {greedy:.2f} greedy, {sampled:.2f} sampled".format(
                environment.title, **levels[environment.name]
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "recipe": recipe.as_json(),
        "num_parameters": model.num_parameters(),
        "loss": loss,
        "levels": levels,
        "levels_after_earlier_stages": earlier,
        "teaching_seconds": round(taught_seconds, 1),
        "seconds": round(time.monotonic() - started, 1),
    }


def untaught(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The model before its first lesson, drawn from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.num_layers,
        intermediate_size=recipe.intermediate_size,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        head_dim=recipe.hidden_size // recipe.num_heads,
        initializer_range=recipe.initializer_range,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def _levels(model: Any, chat: Chat, num_tasks: int) -> Levels:
    return {task.name: level(model, chat, task, num_tasks) for task in LEVELS_OF}


def level(
    model: Any, chat: Chat, environment: EnvironmentConfig, num_tasks: int
) -> dict[str, float]:
    """Success on the held-out tasks that a run is evaluated on, greedy and at temperature 1."""
    found: dict[str, float] = {"num_tasks": num_tasks}
    indices = finished(heldout_indices(environment, num_tasks, available=None))
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        tasks = [make_environment(environment, "heldout", index) for index in indices]
        random = torch.Generator().manual_seed(0)
        episodes = play(model, chat, environment, tasks, temperature=temperature, random=random)
        found[name] = sum(episode.success for episode in episodes) / num_tasks
    return found
