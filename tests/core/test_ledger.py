import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lagoon.ledger import Ledger


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of legal moves keeps the ledger balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()

    @rule(count=st.integers(1, 5))
    def issue(self, count: int) -> None:
        self.ledger = self.ledger.issue(count)

    @precondition(lambda self: self.ledger.generating)
    @rule()
    def complete(self) -> None:
        self.ledger = self.ledger.complete()

    @precondition(lambda self: self.ledger.ready)
    @rule()
    def reserve(self) -> None:
        self.ledger = self.ledger.reserve(1)

    @precondition(lambda self: self.ledger.reserved)
    @rule()
    def train(self) -> None:
        self.ledger = self.ledger.train(1)

    @precondition(lambda self: self.ledger.ready)
    @rule(reason=st.sampled_from(["stale", "failed"]))
    def drop(self, reason: str) -> None:
        self.ledger = self.ledger.drop(reason, ready=1)

    @invariant()
    def balances(self) -> None:
        assert self.ledger.is_balanced


TestLedger = LedgerMachine.TestCase


def test_a_move_that_would_unbalance_the_ledger_is_refused() -> None:
    with pytest.raises(ValueError, match="does not balance"):
        Ledger().complete()
    with pytest.raises(ValueError, match="does not balance"):
        Ledger().issue().train(1)
