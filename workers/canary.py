"""Canary prompts: fixed token sequences whose answers show which weights a generator computes with.

They are short, the same for the whole run, and pass through engine and cache as every request does.
The last one is longer than several blocks of the cache and begins like no prompt of the
environment. It was asked at the version before: a cache that was not dropped holds it still, and
since a publish nobody else can have put it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from lagoon.trajectory import TrainingSample, Trajectory
from workers.rollout import Sampled

Answers = Sequence[Sampled]
"""One for each canary prompt."""
Scores = Sequence[Sequence[float]]
"""Log-probabilities of the tokens of answers."""

NUM_OPENINGS = 3
"""Prompts that are the ends of the run's first held-out ones."""
OPENING_TOKENS = 64
LONG_TOKENS = 96
"""Three blocks of the CPU engine's cache, six of a GPU's."""
NUM_TOKENS = 2
"""Greedy tokens of an answer. They go on past an end of turn, where a policy is less sure of
itself and its log-probabilities move more."""


def canary_prompts(
    openings: Sequence[Sequence[int]], seed: int, max_length_tokens: int
) -> list[list[int]]:
    """The ends of ``openings``, and a long prompt of their tokens in an order of its own."""
    room = max_length_tokens - NUM_TOKENS
    known = sorted({token for opening in openings for token in opening})
    long = np.random.default_rng(seed).choice(known, size=min(LONG_TOKENS, room))
    ends = [list(opening[-min(OPENING_TOKENS, room) :]) for opening in openings]
    return [*ends, [int(token) for token in long]]


def described(prompts: Sequence[Sequence[int]]) -> str:
    """The prompts in words, for the run's log: equal words are equal prompts."""
    digest = hashlib.sha256(repr([list(prompt) for prompt in prompts]).encode()).hexdigest()
    lengths = ", ".join(str(len(prompt)) for prompt in prompts)
    return f"{len(prompts)} of {lengths} tokens, SHA-256 {digest[:16]}"


def as_samples(prompts: Sequence[Sequence[int]], answers: Answers) -> list[TrainingSample]:
    """Answers as something that a trainer can score."""
    return [
        TrainingSample(_trajectory(f"canary/{index}", prompt, answer), 0.0, 0.0)
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]


def _trajectory(name: str, prompt: Sequence[int], answer: Sampled) -> Trajectory:
    given = len(prompt)
    return Trajectory(
        trajectory_id=name,
        prompt_id=name,
        split="train",
        token_ids=(*prompt, *answer.token_ids),
        action_mask=(0,) * given + (1,) * len(answer.token_ids),
        behavior_logprobs=(0.0,) * given + tuple(answer.logprobs),
        versions=(None,) * given + tuple(answer.versions),
        completed_version=0,
        reward=0.0,
        success=False,
    )


def difference(answers: Answers, expected: Scores) -> float:
    """The largest mean difference within an answer, in nats, as far as ``expected`` goes."""
    found = []
    with np.errstate(invalid="ignore"):  # two infinities differ by NaN, which is no small number
        for answer, scores in zip(answers, expected, strict=True):
            ours = np.asarray(answer.logprobs[: len(scores)])
            found.append(np.abs(ours - np.asarray(scores)).mean())
    return float(np.max(found))


def comparable(reference: Answers, answers: Answers) -> list[list[float]]:
    """The log-probabilities of ``reference`` as far as ``answers`` can be held against them.

    That is up to the first token in which they differ, included: near a tie two engines choose
    different tokens, whose log-probabilities differ as little as those of equal ones.
    """
    scores = []
    for one, other in zip(reference, answers, strict=True):
        pairs = enumerate(zip(one.token_ids, other.token_ids, strict=True))
        last = next((at for at, (ours, theirs) in pairs if ours != theirs), len(one.token_ids))
        scores.append(one.logprobs[: last + 1])
    return scores


def are_equal(before: Answers, after: Answers) -> bool:
    """Whether all tokens and log-probabilities are equal, bit for bit."""
    return all(
        one.token_ids == other.token_ids and one.logprobs == other.logprobs
        for one, other in zip(before, after, strict=True)
    )


def have_moved(before: Scores, after: Scores) -> bool:
    """Whether at least half of the scores of the same tokens are others."""
    changed = [
        old != new
        for olds, news in zip(before, after, strict=True)
        for old, new in zip(olds, news, strict=True)
    ]
    return 2 * sum(changed) >= len(changed)
