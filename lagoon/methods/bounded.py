"""What methods share whose rollouts may be held back by age: a bound at admission, and a second
check when a batch is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.methods.corrected import Corrected

if TYPE_CHECKING:
    from lagoon.config import RunConfig


class Bounded(Corrected):
    """A method whose staleness may be bounded (arXiv:2505.24298).

    A bound holds new rollouts back until they can be trained on within it. It counts them in the
    order that they were started, so one that takes longer than the others may exceed it; the
    second check, when a batch is drawn, drops such groups.
    """

    live = ("max_staleness",)

    max_staleness: int | None = Field(None, ge=0, le=1_000_000)
    """Policy versions by which a group may lag, as far as its start decides that. Empty: no bound;
    0 is synchronous training."""
    drop_stale: bool = False
    """Drop groups with a token that lags by more than max_staleness when a batch is drawn. What is
    slow is dropped more often: the ledger counts it."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A second check of a bound that there is not, or that nothing can exceed; and a bound that
        the loss would know nothing of."""
        found = super().clashes(config)
        if self.drop_stale and not self.max_staleness:
            message = (
                "drop_stale checks max_staleness, which is not set"
                if self.max_staleness is None
                else "with max_staleness 0 nothing is stale: drop_stale has no effect"
            )
            found.append(Clash(("method.drop_stale", "method.max_staleness"), message))
        if self.correction == "none" and self.max_staleness:
            message = (
                f"tokens may be {self.max_staleness} versions old, and without a correction the "
                "loss takes them for the present policy's: choose one (without any bound, none is "
                "the uncorrected baseline)"
            )
            found.append(Clash(("method.max_staleness", "method.correction"), message))
        return found

    @property
    def staleness_bound(self) -> int | None:
        """As configured."""
        return self.max_staleness

    @property
    def hard_bound(self) -> int | None:
        """The same bound, where it is checked again."""
        return self.max_staleness if self.drop_stale else None
