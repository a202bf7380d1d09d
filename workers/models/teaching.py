"""Supervised learning on demonstrations: the loss counts the assistant's turns alone."""

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from lagoon.environments import EnvironmentConfig
from workers.chat import Chat
from workers.environments import demonstrate
from workers.environments.base import Message
from workers.models.muon import Muon
from workers.models.recipes import Schedule

Progress = Callable[[str], None]


class Optimizer:
    """Muon for the matrices of the layers, AdamW for everything else."""

    def __init__(self, model: Any, schedule: Schedule) -> None:
        self._schedule = schedule
        self._parameters = list(model.parameters())
        matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
        taken = {id(weight) for weight in matrices}
        others = [weight for weight in self._parameters if id(weight) not in taken]
        self._muon = Muon(matrices)
        self._adamw = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, share: float) -> None:
        """One update with a share of the schedule's learning rates; the gradients are used up."""
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for group in self._adamw.param_groups:
            group["lr"] = self._schedule.learning_rate * share
        self._adamw.step()
        self._adamw.zero_grad()
        self._muon.step(self._schedule.matrix_learning_rate * share)


def teach(
    model: Any,
    chat: Chat,
    schedule: Schedule,
    *,
    seed: int,
    progress: Progress,
    between_stages: Callable[[], None] = lambda: None,
) -> float:
    """Train ``model`` in place and return its last loss (nats a token).

    A step takes demonstrations of one difficulty of each environment, so that the rows of a pass
    are about equally long. They come from the train split, by rising index. ``between_stages`` may
    look at the model, which is then in evaluation mode, as it is at the end.
    """
    random = Random(f"teaching {seed}")
    optimizer = Optimizer(model, schedule)
    loss, last_stage = math.nan, schedule.stages[0]
    for step in range(schedule.num_steps):
        stage, share = schedule.at(step)
        if stage is not last_stage:
            model.eval()
            between_stages()
            last_stage = stage
        model.train()
        shown = [random.choice(difficulties) for difficulties in stage.lessons]
        indices = range(step * schedule.batch_size, (step + 1) * schedule.batch_size)
        losses = [_loss(model, _batch(chat, environment, indices)) for environment in shown]
        value = torch.stack(losses).mean()
        torch.autograd.backward(value)
        optimizer.step(share)
        loss = float(value.detach())
        if (step + 1) % max(1, schedule.num_steps // 20) == 0:
            progress(f"step {step + 1} of {schedule.num_steps}, loss {loss:.3f}")
    model.eval()
    return loss


def _batch(
    chat: Chat, environment: EnvironmentConfig, indices: Iterable[int]
) -> list[tuple[list[int], list[int]]]:
    return [spoken(chat, demonstrate(environment, "train", index)) for index in indices]


def spoken(chat: Chat, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    """A conversation's tokens, and 1 for each that the assistant says (its end of turn too)."""
    turns = [at for at, message in enumerate(messages) if message.role == "assistant"]
    tokens = chat.open(messages[: turns[0]])
    mask = [0] * len(tokens)
    for at, following in zip(turns, [*turns[1:], None], strict=True):
        said = chat.said(messages[at].text)
        after = [] if following is None else chat.observe(said, messages[at + 1 : following])
        tokens += said + after
        mask += [1] * len(said) + [0] * len(after)
    return tokens, mask


def _loss(model: Any, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """Mean negative log-likelihood of the taught tokens of (tokens, mask) rows."""
    length = max(len(tokens) for tokens, _ in rows)
    tokens_BT = torch.tensor([tokens + [0] * (length - len(tokens)) for tokens, _ in rows])
    mask_BT = torch.tensor([mask + [0] * (length - len(mask)) for _, mask in rows])
    logits = model(input_ids=tokens_BT[:, :-1]).logits
    targets = tokens_BT[:, 1:].masked_fill(mask_BT[:, 1:] == 0, -100)
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
