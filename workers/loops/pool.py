"""The pool: where the prompts of a policy-gradient run are, and the groups that wait for training.

::

    issue ─▶ generating ─▶ complete ─▶ ready ─▶ draw ─▶ reserved ─▶ trained
                 │                       └──────▶ dropped, with a reason
                 └────────────────────────────────▲

Every move goes through the books, which refuse one that does not balance. Tokens are in them from
the moment that their trajectory has come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lagoon.books import Books, tally
from lagoon.ledger import Ledger
from lagoon.methods import PolicyGradient
from lagoon.points import Point
from lagoon.selection import PooledGroup
from lagoon.trajectory import Trajectory, TrajectoryGroup
from workers.loops.state import LoopState


class Pool:
    """Prompts by where they are. It begins as a checkpoint has it."""

    def __init__(self, begins: LoopState) -> None:
        self.books: Books = begins.books
        self.ready: list[PooledGroup] = [PooledGroup.of(group) for group in begins.pool]
        """Finished groups that wait for an update, in the order in which they were finished."""
        self.drawn: list[TrajectoryGroup] = []
        """The groups of the update that is being made."""
        self.memory: Mapping[str, float] = begins.memory
        """What the method's last selection left for the next."""
        self.said: tuple[Point, ...] = ()
        """What the method said of its last choice."""

    @property
    def groups(self) -> tuple[TrajectoryGroup, ...]:
        """All groups that were not trained on yet. A drawn batch belongs to them."""
        return (*self.drawn, *(pooled.group for pooled in self.ready))

    @property
    def ledger(self) -> Ledger:
        """Where all prompts are."""
        return self.books.prompts

    @property
    def books_between_updates(self) -> Books:
        """The books with the drawn batch put back."""
        return self.books.put_back(self.drawn)

    def issue(self) -> int:
        """The position, in the run's prompt order, of the next new prompt."""
        self.books = self.books.issue()
        return self.ledger.issued - 1

    def complete(self, group: TrajectoryGroup) -> None:
        """A prompt's trajectories are all there."""
        self._note_sampled(group.trajectories)
        self.books = self.books.complete(group)
        self.ready.append(PooledGroup.of(group))

    def give_up(self, reason: str, played: Sequence[Trajectory]) -> None:
        """A prompt that is being generated gives nothing to train on, whatever was ``played``."""
        self._note_sampled(played)
        self.books = self.books.give_up(reason, played)

    def drop_member(self, reason: str, trajectory: Trajectory) -> None:
        """A prompt that is being generated goes on without one of its trajectories."""
        self._note_sampled([trajectory])
        self.books = self.books.drop_member(reason, trajectory)

    def _note_sampled(self, trajectories: Sequence[Trajectory]) -> None:
        self.books = self.books.sample(tally(trajectories).tokens)

    def older_than(self, version: int) -> list[PooledGroup]:
        """Ready groups with a token that an older policy sampled."""
        return [pooled for pooled in self.ready if pooled.worst(version) > 0]

    def score(self, groups: Sequence[PooledGroup], scores: Sequence[Sequence[float]]) -> None:
        """Note the present log-probabilities of ready ``groups``, trajectory by trajectory."""
        left = iter(scores)
        scored = {
            id(pooled): replace(
                pooled, logprobs=tuple(tuple(next(left)) for _ in pooled.group.trajectories)
            )
            for pooled in groups
        }
        self.ready = [scored.get(id(pooled), pooled) for pooled in self.ready]

    def draw(self, method: PolicyGradient, version: int) -> list[TrajectoryGroup]:
        """What the method trains on at ``version``; empty when there is no batch yet.

        What it gives up leaves the pool, whether there is a batch or not.
        """
        found = method.select(tuple(self.ready), version, self.memory)
        self.said = found.points
        for at, reason in found.dropped.items():
            self.books = self.books.drop_ready(reason, [self.ready[at].group])
        self.drawn = [self.ready[at].group for at in found.drawn]
        self.books = self.books.reserve(self.drawn)
        left = set(found.drawn) | set(found.dropped)
        self.ready = [pooled for at, pooled in enumerate(self.ready) if at not in left]
        self.memory = found.memory
        return self.drawn

    def train(self) -> None:
        """The drawn batch was trained on."""
        self.books = self.books.train(self.drawn)
        self.drawn = []
