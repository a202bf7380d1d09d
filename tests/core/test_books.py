import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lagoon.books import Books, Tally, length_bias, tally, token_points
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory

REASONS = st.sampled_from(["stale", "generator_lost"])


def group(*lengths: int, reward: float = 1.0) -> TrajectoryGroup:
    members = [trajectory(versions=[0] * length, reward=reward) for length in lengths]
    return TrajectoryGroup("p", tuple(members))


class BooksMachine(RuleBasedStateMachine):
    """Any sequence of legal moves keeps both ledgers balanced, and no token is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books()
        self.generating: list[list[int]] = []
        """Lengths of the finished trajectories of each prompt."""
        self.ready: list[TrajectoryGroup] = []
        self.reserved: list[TrajectoryGroup] = []

    @rule()
    def issue(self) -> None:
        self.books = self.books.issue()
        self.generating.append([])

    @precondition(lambda self: self.generating)
    @rule(length=st.integers(0, 5))
    def sample(self, length: int) -> None:
        self.books = self.books.sample(length)
        self.generating[0].append(length)

    @precondition(lambda self: self.generating and self.generating[0])
    @rule()
    def lose_one(self) -> None:
        length = self.generating[0].pop()
        self.books = self.books.drop_member("reward_not_finite", group(length).trajectories[0])

    @precondition(lambda self: self.generating)
    @rule()
    def complete(self) -> None:
        self.ready.append(group(*self.generating.pop(0)))
        self.books = self.books.complete(self.ready[-1])

    @precondition(lambda self: self.generating)
    @rule(reason=REASONS)
    def give_up(self, reason: str) -> None:
        lengths = self.generating.pop(0)
        self.books = self.books.give_up(reason, group(*lengths).trajectories)

    @precondition(lambda self: self.ready)
    @rule()
    def reserve(self) -> None:
        self.reserved.append(self.ready.pop(0))
        self.books = self.books.reserve(self.reserved[-1:])

    @precondition(lambda self: self.ready)
    @rule(reason=REASONS)
    def drop_ready(self, reason: str) -> None:
        self.books = self.books.drop_ready(reason, [self.ready.pop()])

    @precondition(lambda self: self.reserved)
    @rule(choice=st.sampled_from(["train", "put back"]))
    def end(self, choice: str) -> None:
        groups, self.reserved = self.reserved, []
        if choice == "train":
            self.books = self.books.train(groups)
        else:
            self.books = self.books.put_back(groups)
            self.ready += groups

    @invariant()
    def balances(self) -> None:
        books = self.books
        assert books.prompts.is_balanced
        assert books.tokens.is_balanced
        assert books.prompts.ready == len(self.ready)
        assert books.tokens.ready == sum(tally(g.trajectories).tokens for g in self.ready)
        assert books.tokens.generating == sum(map(sum, self.generating))
        assert books.tokens.trained == books.trained.tokens
        lost = {reason: fate.tokens for reason, fate in books.dropped.items()}
        assert books.tokens.dropped == lost


BooksMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestBooks = BooksMachine.TestCase


def finished(*groups: TrajectoryGroup) -> Books:
    books = Books().issue(len(groups))
    for one in groups:
        books = books.sample(tally(one.trajectories).tokens).complete(one)
    return books


def test_dropping_long_work_shows_as_a_negative_length_bias() -> None:
    short, long = group(2, 4), group(9, 9, reward=0.0)
    books = finished(short, long)
    assert math.isnan(books.length_bias)
    books = books.drop_ready("stale", [long]).reserve([short]).train([short])
    assert books.length_bias == pytest.approx(3 / 6 - 1)
    assert books.trained == Tally(trajectories=2, successes=2, tokens=6)
    assert books.dropped == {"stale": Tally(trajectories=2, successes=0, tokens=18)}


def test_without_a_drop_there_is_no_length_bias() -> None:
    assert length_bias(Tally(3, 1, 30), Tally()) == 0.0
    assert math.isnan(length_bias(Tally(), Tally(3, 1, 30)))


def test_tokens_that_were_not_counted_as_sampled_cannot_be_completed() -> None:
    with pytest.raises(ValueError, match="does not balance"):
        Books().issue().complete(group(3))


def test_the_token_ledger_and_the_fates_are_reported() -> None:
    short, long = group(2), group(8, reward=0.0)
    books = finished(short, long).drop_ready("stale", [long]).reserve([short]).train([short])
    points = {(p.name, *p.labels.values()): p.value for p in token_points(books.issue().sample(5))}
    assert points == {
        ("ledger/tokens", "issued"): 15,
        ("ledger/tokens", "trained"): 2,
        ("ledger/tokens", "generating"): 5,
        ("ledger/tokens", "ready"): 0,
        ("ledger/tokens", "reserved"): 0,
        ("ledger/tokens_dropped", "stale"): 8,
        ("ledger/trained_trajectories", "success"): 1,
        ("ledger/trained_trajectories", "failure"): 0,
        ("ledger/dropped_trajectories", "stale", "success"): 0,
        ("ledger/dropped_trajectories", "stale", "failure"): 1,
        ("ledger/length_bias",): pytest.approx(2 / 5 - 1),
    }
