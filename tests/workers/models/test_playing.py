"""The batched player against an independent one: whole-prefix forward passes, one episode."""

from typing import Any

import pytest
import torch

from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from workers.chat import Chat
from workers.environments import make_environment
from workers.environments.base import finished
from workers.models.playing import Episode, play
from workers.models.recipes import Recipe
from workers.models.tiny import untaught
from workers.models.tokenizer import character_tokenizer

CALCULATOR = Calculator(mean_wait_seconds=0)


def small_model() -> tuple[Any, Chat]:
    tokenizer = character_tokenizer()
    with torch.random.fork_rng(devices=[]):
        model = untaught(Recipe(hidden_size=32, intermediate_size=32, num_layers=2), tokenizer)
    return model.eval(), Chat(tokenizer)


def batch(model: Any, chat: Chat, temperature: float, num_tasks: int = 4) -> list[Episode]:
    worlds = [make_environment(CALCULATOR, "heldout", index) for index in range(num_tasks)]
    random = torch.Generator().manual_seed(0)
    return play(model, chat, CALCULATOR, worlds, temperature=temperature, random=random)


@torch.no_grad()
def alone(model: Any, chat: Chat, index: int) -> tuple[list[int], list[int]]:
    """Greedy play of one task, the slow and plain way."""
    world = make_environment(CALCULATOR, "heldout", index)
    tokens, mask = chat.open(finished(world.start())), []
    mask, num_turns = [0] * len(tokens), 0
    while True:
        turn: list[int] = []
        while len(turn) < CALCULATOR.max_tokens_per_turn:
            logits = model(input_ids=torch.tensor([tokens + turn])).logits[0, -1]
            turn.append(int(logits.argmax()))
            if turn[-1] in chat.stop_token_ids:
                break
        tokens, mask = tokens + turn, mask + [1] * len(turn)
        observation = finished(world.step(chat.text(turn)))
        num_turns += 1
        if observation.done or num_turns == CALCULATOR.max_turns:
            return tokens, mask
        heard = chat.observe(turn, observation.messages)
        tokens, mask = tokens + heard, mask + [0] * len(heard)


def test_episodes_played_together_equal_episodes_played_alone() -> None:
    model, chat = small_model()
    for index, episode in enumerate(batch(model, chat, temperature=0.0)):
        assert (episode.token_ids, episode.action_mask) == alone(model, chat, index)
        assert episode.done
        assert episode.num_turns <= CALCULATOR.max_turns


@torch.no_grad()
def test_recorded_logprobs_are_those_of_a_whole_forward_pass() -> None:
    model, chat = small_model()
    for episode in batch(model, chat, temperature=1.0):
        tokens = torch.tensor([episode.token_ids])
        expected = model(input_ids=tokens).logits[0, :-1].log_softmax(-1)
        expected = expected.gather(1, tokens[0, 1:, None])[:, 0]
        sampled = torch.tensor(episode.action_mask[1:]) == 1
        recorded = torch.tensor(episode.logprobs[1:])
        torch.testing.assert_close(recorded[sampled], expected[sampled], atol=1e-5, rtol=1e-5)
        assert not recorded[~sampled].any()


def test_sampling_is_reproducible_from_its_generator() -> None:
    model, chat = small_model()
    first, again = (batch(model, chat, temperature=1.0) for _ in range(2))
    assert [episode.token_ids for episode in first] == [episode.token_ids for episode in again]


def test_an_episode_that_is_too_long_is_cut() -> None:
    model, chat = small_model()
    config = Sudoku4()
    worlds = [make_environment(config, "heldout", 0)]
    (episode,) = play(
        model, chat, config, worlds, temperature=0.0, random=torch.Generator(), max_length=24
    )
    assert len(episode.token_ids) <= 24
    assert not episode.success


def test_a_coroutine_that_never_waits_is_finished_without_a_loop() -> None:
    async def answer() -> int:
        return 42

    async def broken() -> int:
        raise ValueError("inside")

    assert finished(answer()) == 42
    with pytest.raises(ValueError, match="inside"):
        finished(broken())
