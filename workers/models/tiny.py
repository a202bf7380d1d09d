"""The tiny model: a small Qwen3 policy, taught the built-in environments by demonstrations.

Its level is set by the difficulty of the tasks: the demonstrations are all correct, and most are
of easier tasks than the environments' defaults.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from lagoon.environments import EnvironmentConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from workers.chat import Chat
from workers.environments import make_environment
from workers.models.playing import play
from workers.models.teaching import Lesson, Progress, Schedule, teach
from workers.models.tokenizer import character_tokenizer

SOURCES = (
    "chat.py",
    "models/tiny.py",
    "models/muon.py",
    "models/teaching.py",
    "models/tokenizer.py",
    "environments/base.py",
    "environments/calculator.py",
    "environments/sudoku4.py",
)
"""Code whose change makes another model."""


def calculator_lessons() -> tuple[Lesson, ...]:
    """Expressions of one to four operations."""
    return tuple(
        Lesson(Calculator(num_operations=count, max_turns=count + 1)) for count in (1, 2, 3, 4)
    )


def sudoku_lessons() -> tuple[Lesson, ...]:
    """Puzzles of one to eight blanks."""
    return tuple(Lesson(Sudoku4(num_blanks=count), 0.5) for count in range(1, 9))


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the tiny model's weights, besides the code."""

    seed: int = 0
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    intermediate_size: int = 384
    initializer_range: float = 0.06
    """Far above the usual 0.02: at this width, learning starts several times sooner."""
    lessons: tuple[Lesson, ...] = field(
        default_factory=lambda: calculator_lessons() + sudoku_lessons()
    )
    schedule: Schedule = field(default_factory=lambda: Schedule(num_steps=400, batch_size=32))
    num_threads: int = 1
    """Sums depend on it in their last bits, so it is part of the recipe."""
    num_eval_tasks: int = 256

    @property
    def fingerprint(self) -> str:
        """A short hash of the recipe and of the code that carries it out."""
        package = Path(__file__).parents[1]
        digest = blake2b(json.dumps(self.as_json(), sort_keys=True).encode(), digest_size=6)
        for source in SOURCES:
            digest.update((package / source).read_bytes())
        return digest.hexdigest()

    def as_json(self) -> dict[str, Any]:
        """The recipe as plain data."""
        plain = asdict(self) | {"lessons": []}
        for lesson in self.lessons:
            plain["lessons"].append(lesson.environment.model_dump() | {"weight": lesson.weight})
        return plain


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
    loss = teach(model, chat, recipe.lessons, recipe.schedule, seed=recipe.seed, progress=progress)
    taught_seconds = time.monotonic() - started
    model.eval()
    levels = {}
    for environment in (Calculator(mean_wait_seconds=0), Sudoku4()):
        levels[environment.name] = level(model, chat, environment, recipe.num_eval_tasks)
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


def level(
    model: Any, chat: Chat, environment: EnvironmentConfig, num_tasks: int
) -> dict[str, float]:
    """Success on the first held-out tasks, greedy and at temperature 1."""
    found: dict[str, float] = {"num_tasks": num_tasks}
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        tasks = [make_environment(environment, "heldout", index) for index in range(num_tasks)]
        random = torch.Generator().manual_seed(0)
        episodes = play(model, chat, environment, tasks, temperature=temperature, random=random)
        found[name] = sum(episode.success for episode in episodes) / num_tasks
    return found
