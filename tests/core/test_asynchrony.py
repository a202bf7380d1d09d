"""The rules of asynchronous training together, without a loop: any interleaving of starts, sampled
tokens, publishes, ends, deaths and updates."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lagoon.books import Books
from lagoon.pace import PaceState, candidate, decide
from lagoon.selection import PooledGroup
from lagoon.staleness import admissible, staleness_account
from lagoon.trajectory import TrajectoryGroup
from tests.builders import pace_settings, trajectory

MAX_IN_FLIGHT = 12


class Asynchrony(RuleBasedStateMachine):
    """Groups of one trajectory, in the order in which they finish."""

    @initialize(bound=st.integers(0, 2), batch=st.integers(1, 2), paced=st.booleans())
    def begin(self, bound: int, batch: int, paced: bool) -> None:
        self.bound, self.batch = bound, batch
        self.pace = pace_settings(batch, batch, smoothing=0.5) if paced else None
        self.pace_state = PaceState()
        self.version = self.published = 0
        self.books = Books()
        self.in_flight: list[list[int]] = []
        """Versions of the tokens sampled so far."""
        self.pool: list[TrajectoryGroup] = []

    def room(self) -> int:
        started = self.books.prompts.issued - self.books.prompts.num_dropped
        room = admissible(self.published, started, max_staleness=self.bound, batch_size=self.batch)
        return min(room, MAX_IN_FLIGHT - len(self.in_flight))

    @precondition(lambda self: self.room() > 0)
    @rule()
    def start(self) -> None:
        self.books = self.books.issue().sample(1)
        self.in_flight.append([self.published])

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, MAX_IN_FLIGHT))
    def sample(self, which: int) -> None:
        """A trajectory in progress goes on under what its generator holds now."""
        self.in_flight[which % len(self.in_flight)].append(self.published)
        self.books = self.books.sample(1)

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, MAX_IN_FLIGHT), lives=st.sampled_from([True, True, True, False]))
    def end(self, which: int, lives: bool) -> None:
        versions = self.in_flight.pop(which % len(self.in_flight))
        made = trajectory(versions=versions, completed=self.version)
        if lives:
            self.pool.append(TrajectoryGroup("p", (made,)))
            self.books = self.books.complete(self.pool[-1])
        else:
            self.books = self.books.give_up("generator_lost", [made])

    @precondition(lambda self: self.published < self.version)
    @rule()
    def publish(self) -> None:
        self.published = self.version

    @precondition(lambda self: len(self.pool) >= self.batch)
    @rule()
    def update(self) -> None:
        for group in list(self.pool):
            reason = PooledGroup.of(group).why_dropped(self.version, self.bound)
            if reason is not None:
                self.drop(reason, group)
        drawn = self.drawn()
        if len(drawn) < self.batch:
            return
        self.books = self.books.reserve(drawn)
        account = staleness_account([g.trajectories[0] for g in drawn], self.version)
        assert max(account.total) <= self.bound
        assert account.coverage == 1.0
        total, parts = (
            sum(age * count for part in found for age, count in part.items())
            for found in ([account.total], [account.generation, account.waiting])
        )
        assert total == parts
        self.books = self.books.train(drawn)
        self.pool = [group for group in self.pool if not any(group is one for one in drawn)]
        self.version += 1

    def drawn(self) -> list[TrajectoryGroup]:
        if self.pace is None:
            return self.pool[: self.batch]
        pool = [
            [candidate(one, one.behavior_logprobs, self.version) for one in group.trajectories]
            for group in self.pool
        ]
        self.pace_state, choice = decide(self.pace, self.pace_state, pool)
        chosen = [self.pool[position] for position in choice.train]
        reasons = zip(choice.reject, choice.reasons, strict=True)
        for group, reason in [(self.pool[position], reason) for position, reason in reasons]:
            self.drop(reason, group)
        return chosen

    def drop(self, reason: str, group: TrajectoryGroup) -> None:
        self.pool = [one for one in self.pool if one is not group]
        self.books = self.books.drop_ready(reason, [group])

    @invariant()
    def everything_is_accounted_for(self) -> None:
        prompts, tokens = self.books.prompts, self.books.tokens
        assert prompts.is_balanced
        assert tokens.is_balanced
        assert (prompts.generating, prompts.ready) == (len(self.in_flight), len(self.pool))
        assert tokens.generating == sum(map(len, self.in_flight))

    @invariant()
    def something_can_go_on(self) -> None:
        is_waiting_for_nobody = self.in_flight or self.room() > 0 or self.published < self.version
        assert is_waiting_for_nobody or len(self.pool) >= self.batch


Asynchrony.TestCase.settings = settings(max_examples=40, stateful_step_count=60)
TestAsynchrony = Asynchrony.TestCase


def test_a_group_that_others_overtook_is_dropped_before_it_breaks_the_bound() -> None:
    run = Asynchrony()
    run.begin(bound=1, batch=1, paced=False)
    run.start()
    for _ in range(2):
        run.start()
        run.end(which=1, lives=True)
        run.update()
        run.publish()
    run.end(which=0, lives=True)
    run.update()
    assert (run.version, run.books.prompts.dropped) == (2, {"stale": 1})
    run.teardown()


@pytest.mark.parametrize("paced", [False, True])
def test_under_constant_over_supply_an_unbounded_pool_grows_and_a_paced_one_does_not(
    paced: bool,
) -> None:
    """Six groups finish for each update of four; nothing bounds their age."""
    chosen, state = pace_settings(4, 8), PaceState()
    pool: list[int] = []
    occupancy = []
    for version in range(300):
        pool += [version] * 6
        occupancy.append(len(pool))
        train: tuple[int, ...] = tuple(range(4))
        reject: tuple[int, ...] = ()
        if paced:
            ready = [
                [candidate(trajectory(versions=[born], completed=born), [-1.0], version)]
                for born in pool
            ]
            state, choice = decide(chosen, state, ready)
            train, reject = choice.train, choice.reject
        gone = {*train, *reject}
        pool = [born for position, born in enumerate(pool) if position not in gone]
    if paced:
        assert all(9 <= ready <= 11 for ready in occupancy[150:])
    else:
        assert occupancy[-1] == 6 + 299 * 2
