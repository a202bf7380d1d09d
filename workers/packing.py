"""Which trajectories stand in which row of a batch, so that a shared prompt is computed once.

::

    a group's trajectories   [prompt a a a]  [prompt b b]  [prompt c c c c]
    one row                  [prompt a a a b b c c c c]
    what a token sees        the prompt, and its own trajectory up to itself

The trajectories of a group start with the same prompt, which a batch then repeats; standing behind
one copy of it, they are scored exactly as they are alone. The first trajectory of a row is whole,
the others go without their prompt. Whether that is worth it is counted in multiplications: a token
costs those with a layer's weights, and those with the tokens that it may see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lagoon.trajectory import Trajectory

MAX_SHARED_ROW_TOKENS = 2048
"""Longest row with several trajectories: what each token sees is then a table of its square."""
MAX_SHARED_WORK = 0.8
"""Prompts are shared when that leaves at most this part of the work: the count is an estimate."""
WEIGHTS = 12
"""A layer's weights in squares of the model's width: attention has 4, a usual feed-forward 8."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A trajectory in a row: its tokens from ``skipped`` on stand from column ``start`` on."""

    index: int
    """Its position in the batch."""
    start: int
    skipped: int
    """Tokens of the prompt, if an earlier trajectory of the row holds them; else 0."""
    length: int
    """Columns that it takes."""


@dataclass(frozen=True, slots=True)
class Row:
    """Trajectories that stand one behind the other."""

    placed: tuple[Placed, ...]
    num_shared: int
    """Tokens at the start that all of them see: their prompt. Without effect on a single one."""

    @property
    def is_shared(self) -> bool:
        """Whether it holds several trajectories."""
        return len(self.placed) > 1

    @property
    def num_tokens(self) -> int:
        """Columns of the row."""
        return self.placed[-1].start + self.placed[-1].length


def alone(trajectories: Sequence[Trajectory]) -> list[Row]:
    """Each trajectory in a row of its own."""
    return [
        Row((Placed(index, 0, 0, len(trajectory.token_ids)),), 0)
        for index, trajectory in enumerate(trajectories)
    ]


def sharing_prompts(trajectories: Sequence[Trajectory], max_tokens: int, width: int) -> list[Row]:
    """Trajectories with the same prompt in one row, where that saves enough work of a model whose
    states are ``width`` numbers wide.

    No row that holds several is longer than ``max_tokens`` or ``MAX_SHARED_ROW_TOKENS``.
    """
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, trajectory in enumerate(trajectories):
        groups[_prompt(trajectory)].append(index)
    longest = min(max_tokens, MAX_SHARED_ROW_TOKENS)
    lone = alone(trajectories)
    rows = []
    for prompt, members in groups.items():
        shared = list(_behind_one_prompt(trajectories, members, len(prompt), longest))
        apart = [lone[index] for index in members]
        is_worth_it = _work(shared, width) <= MAX_SHARED_WORK * _work(apart, width)
        rows += shared if is_worth_it else apart
    return rows


def _work(rows: Iterable[Row], width: int) -> int:
    """Multiplications in a layer that rows cost, in multiples of ``width``.

    Where a table says what is seen, all pairs of tokens are multiplied, else half of them.
    """
    return sum(
        row.num_tokens * (WEIGHTS * width + row.num_tokens * (2 if row.is_shared else 1))
        for row in rows
    )


def _prompt(trajectory: Trajectory) -> tuple[int, ...]:
    """The tokens before the first one that the policy sampled."""
    mask = trajectory.action_mask
    return trajectory.token_ids[: mask.index(1) if 1 in mask else len(mask)]


def _behind_one_prompt(
    trajectories: Sequence[Trajectory], members: Iterable[int], num_shared: int, longest: int
) -> Iterator[Row]:
    placed: list[Placed] = []
    end = 0
    for index in members:
        whole = len(trajectories[index].token_ids)
        if placed and end + whole - num_shared > longest:
            yield Row(tuple(placed), num_shared)
            placed, end = [], 0
        skipped = num_shared if placed else 0
        placed.append(Placed(index, end, skipped, whole - skipped))
        end += whole - skipped
    if placed:
        yield Row(tuple(placed), num_shared)
