import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.canary import (
    LONG_TOKENS,
    NUM_TOKENS,
    OPENING_TOKENS,
    are_equal,
    as_samples,
    canary_prompts,
    comparable,
    described,
    difference,
    have_moved,
)
from workers.rollout import Sampled

OPENINGS = [list(range(10, 90)), [1, 2, 3], [1, 2, 4]]


def answer(tokens: Sequence[int], logprobs: Sequence[float]) -> Sampled:
    return Sampled(list(tokens), list(logprobs), [0] * len(tokens), "length")


def test_the_prompts_are_the_ends_of_the_openings_and_a_long_one() -> None:
    first, second, third, long = canary_prompts(OPENINGS, 0, 1024)
    assert first == OPENINGS[0][-OPENING_TOKENS:]
    assert (second, third) == (OPENINGS[1], OPENINGS[2])
    assert len(long) == LONG_TOKENS
    assert set(long) <= {token for opening in OPENINGS for token in opening}


def test_the_prompts_depend_on_the_seed_alone() -> None:
    assert canary_prompts(OPENINGS, 3, 1024) == canary_prompts(OPENINGS, 3, 1024)
    assert canary_prompts(OPENINGS, 3, 1024)[-1] != canary_prompts(OPENINGS, 4, 1024)[-1]
    words = described(canary_prompts(OPENINGS, 3, 1024))
    assert words.startswith("4 of 64, 3, 3, 96 tokens, SHA-256 ")
    assert words == described(canary_prompts(OPENINGS, 3, 1024))


@given(max_length_tokens=st.integers(16, 300))
def test_a_prompt_and_its_answer_fit_the_model(max_length_tokens: int) -> None:
    for prompt in canary_prompts(OPENINGS, 0, max_length_tokens):
        assert 0 < len(prompt) <= max_length_tokens - NUM_TOKENS


def test_answers_become_samples_whose_own_tokens_are_the_answers() -> None:
    (sample,) = as_samples([[7, 8]], [answer([1, 2], [-0.5, -0.25])])
    trajectory = sample.trajectory
    assert trajectory.token_ids == (7, 8, 1, 2)
    assert trajectory.action_mask == (0, 0, 1, 1)
    assert trajectory.behavior_logprobs == (0.0, 0.0, -0.5, -0.25)


def test_the_difference_is_the_worst_answers_mean() -> None:
    answers = [answer([1, 2], [-1.0, -1.0]), answer([1, 2], [-1.0, -2.0])]
    assert difference(answers, [[-1.0, -1.0], [-1.5, -1.5]]) == pytest.approx(0.5)


@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_a_difference_of_what_is_no_number_is_no_small_number(wrong: float) -> None:
    assert not difference([answer([1], [wrong])], [[wrong]]) <= 1e9


def test_other_greedy_tokens_are_compared_up_to_the_first_of_them() -> None:
    one, other = answer([1, 2, 3], [-0.1, -0.7, -3]), answer([1, 4, 3], [-0.1, -0.7, -9])
    assert comparable([one], [other]) == [[-0.1, -0.7]]
    assert comparable([one], [one]) == [[-0.1, -0.7, -3]]
    assert difference([other], comparable([one], [other])) == 0.0


def test_answers_are_equal_bit_for_bit_or_not() -> None:
    one = [answer([1, 2], [-0.1, -0.2])]
    assert are_equal(one, [answer([1, 2], [-0.1, -0.2])])
    assert not are_equal(one, [answer([1, 2], [-0.1, math.nextafter(-0.2, 0)])])
    assert not are_equal(one, [answer([1, 3], [-0.1, -0.2])])


def test_scores_have_moved_when_half_of_them_are_others() -> None:
    assert have_moved([[-1.0, -2.0]], [[-1.0, -2.1]])
    assert not have_moved([[-1.0, -2.0, -3.0]], [[-1.0, -2.0, -3.1]])
