"""Synchronous GRPO: the baseline that everything asynchronous is measured against."""

from typing import Literal

from lagoon.methods.grouped import Clipped


class GRPO(Clipped):
    """Group Relative Policy Optimization (arXiv:2402.03300), one update per batch.

    Rewards are standardized within each prompt's group; generation waits for the update and the
    update for generation, so nothing trained on is ever stale.
    """

    title = "GRPO (synchronous)"
    paper = "2402.03300"

    name: Literal["grpo"] = "grpo"

    @property
    def staleness_bound(self) -> int:
        """0: the method is synchronous."""
        return 0
