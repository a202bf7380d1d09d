"""Asynchronous GRPO: generation and training go on side by side, and nothing is filtered unless
asked for."""

from __future__ import annotations

from typing import Literal

from lagoon.methods.bounded import Bounded
from lagoon.methods.grouped import GroupRelative


class AsyncGRPO(Bounded, GroupRelative):
    """GRPO on whatever the generators have finished, with an optional bound on its age
    (arXiv:2505.24298). The oldest finished groups make the next batch."""

    title = "GRPO (asynchronous)"
    paper = "2505.24298"

    name: Literal["async_grpo"] = "async_grpo"
