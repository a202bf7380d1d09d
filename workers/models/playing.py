"""Play episodes with a small torch model, all at once: how the tiny model's level is measured.

Every row of the batch stands at the same position. A position is either given (prompt, tool
output) or sampled, so the key-value cache has no holes::

    row 0   prompt prompt prompt sample sample tool   tool   sample ...
    row 1   prompt prompt sample sample sample sample tool   tool   ...

What is given to all rows is fed at once, and rows whose episode is over leave the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lagoon.environments import EnvironmentConfig
from workers.chat import Chat
from workers.environments.base import Environment, finished


@dataclass(slots=True)
class Episode:
    """One row: its tokens so far, and which of them were sampled."""

    environment: Environment
    token_ids: list[int]
    action_mask: list[int]
    logprobs: list[float]
    """Log-probabilities of the sampled tokens at the temperature they were sampled at; 0 else."""
    turn: list[int] = field(default_factory=list)
    num_turns: int = 0
    reward: float = 0.0
    success: bool = False
    done: bool = False

    def give(self, token_ids: Sequence[int]) -> None:
        """Append tokens that nobody sampled."""
        self.token_ids += token_ids
        self.action_mask += [0] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)

    def take(self, token_id: int, logprob: float) -> None:
        """Append a sampled token."""
        self.token_ids.append(token_id)
        self.action_mask.append(1)
        self.logprobs.append(logprob)
        self.turn.append(token_id)


@torch.no_grad()
def play(
    model: Any,
    chat: Chat,
    config: EnvironmentConfig,
    environments: Sequence[Environment],
    *,
    temperature: float,
    random: torch.Generator,
    max_length: int = 256,
) -> list[Episode]:
    """Play every environment to its end, to its turn limit, or to ``max_length`` tokens.

    Waits are not supported.
    """
    episodes = [_opened(chat, environment) for environment in environments]
    rows, cache, fed = episodes, None, 0
    while rows:
        known = min(len(episode.token_ids) for episode in rows)
        tokens = torch.tensor([episode.token_ids[fed:known] for episode in rows])
        output = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, fed = output.past_key_values, known
        sampled, logprobs = _sample(output.logits[:, -1], temperature, random)
        for row, episode in enumerate(rows):
            if len(episode.token_ids) == known:
                episode.take(sampled[row], logprobs[row])
                _advance(chat, config, episode)
        playing = [at for at, episode in enumerate(rows) if not episode.done]
        if known + 1 >= max_length or not playing:
            break
        if len(playing) < len(rows):
            cache.batch_select_indices(torch.tensor(playing))
            rows = [rows[at] for at in playing]
    return episodes


def _opened(chat: Chat, environment: Environment) -> Episode:
    episode = Episode(environment, [], [], [])
    episode.give(chat.open(finished(environment.start())))
    return episode


def _advance(chat: Chat, config: EnvironmentConfig, episode: Episode) -> None:
    """Hand the turn to the environment once it is over."""
    is_cut = len(episode.turn) >= config.max_tokens_per_turn
    if episode.turn[-1] not in chat.stop_token_ids and not is_cut:
        return
    observation = finished(episode.environment.step(chat.text(episode.turn)))
    episode.reward += observation.reward
    episode.num_turns += 1
    episode.success = observation.success
    episode.done = observation.done or episode.num_turns >= config.max_turns
    if not episode.done:
        episode.give(chat.observe(episode.turn, observation.messages))
        episode.turn = []


def _sample(
    logits: torch.Tensor, temperature: float, random: torch.Generator
) -> tuple[list[int], list[float]]:
    """One token a row, with its log-probability; temperature 0 is greedy."""
    logprobs = (logits.float() / (temperature or 1.0)).log_softmax(dim=-1)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1, keepdim=True)
    else:
        tokens = torch.multinomial(logprobs.exp(), 1, generator=random)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()
