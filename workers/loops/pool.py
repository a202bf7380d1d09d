"""The pool: where the prompts of a policy-gradient run are, and the groups that wait for training.

::

    issue ─▶ generating ─▶ complete ─▶ ready ─▶ draw ─▶ reserved ─▶ trained
                 │                       └──────▶ dropped, with a reason
                 └────────────────────────────────▲

Every move goes through the ledger, which refuses one that does not balance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from lagoon.ledger import Ledger
from lagoon.methods import PolicyGradient
from lagoon.points import Point
from lagoon.selection import PooledGroup
from lagoon.trajectory import TrajectoryGroup
from workers.loops.state import LoopState

Scores = tuple[tuple[float, ...], ...]
"""Log-probabilities of the own tokens of each of a group's trajectories."""
Score = Callable[[Sequence[TrajectoryGroup]], Awaitable[list[Scores]]]


class Pool:
    """Prompts by where they are. It begins as a checkpoint has it."""

    def __init__(self, begins: LoopState) -> None:
        self.ledger: Ledger = begins.ledger
        self.ready: list[PooledGroup] = [PooledGroup.of(group) for group in begins.pool]
        """Finished groups that wait for an update, in the order in which they were finished."""
        self.drawn: list[TrajectoryGroup] = []
        """The groups of the update that is being made."""
        self.points: tuple[Point, ...] = ()
        """What the method reports of how the batch was drawn."""
        self.memory: Mapping[str, float] = begins.memory
        """What the method's last selection left for the next."""

    @property
    def groups(self) -> tuple[TrajectoryGroup, ...]:
        """All groups that were not trained on yet. A drawn batch belongs to them."""
        return (*self.drawn, *(pooled.group for pooled in self.ready))

    @property
    def ledger_between_updates(self) -> Ledger:
        """The ledger with the drawn batch put back."""
        return self.ledger.put_back(len(self.drawn))

    def issue(self) -> int:
        """The position, in the run's prompt order, of the next new prompt."""
        self.ledger = self.ledger.issue()
        return self.ledger.issued - 1

    def complete(self, group: TrajectoryGroup) -> None:
        """A prompt's trajectories are all there."""
        self.ledger = self.ledger.complete()
        self.ready.append(PooledGroup.of(group))

    def give_up(self, reason: str) -> None:
        """A prompt that is being generated gives nothing to train on."""
        self.ledger = self.ledger.drop(reason, generating=1)

    async def draw(
        self, method: PolicyGradient, version: int, score: Score
    ) -> list[TrajectoryGroup]:
        """What the method trains on at ``version``; empty when there is no batch yet.

        What it gives up leaves the pool, whether there is a batch or not. ``score`` is asked for
        methods that need it; groups that are finished meanwhile are for the next selection.
        """
        seen = list(self.ready)
        if method.needs_scores:
            if len(seen) < method.prompts_per_step:
                return []
            scores = await score([pooled.group for pooled in seen])
            seen = [replace(one, scores=each) for one, each in zip(seen, scores, strict=True)]
        found = method.select(seen, version, self.memory)
        for reason in found.dropped.values():
            self.ledger = self.ledger.drop(reason, ready=1)
        self.ledger = self.ledger.reserve(len(found.drawn))
        self.drawn = [self.ready[at].group for at in found.drawn]
        left = set(found.drawn) | set(found.dropped)
        self.ready = [pooled for at, pooled in enumerate(self.ready) if at not in left]
        self.memory, self.points = found.memory, found.points
        return self.drawn

    def train(self) -> None:
        """The drawn batch was trained on."""
        self.ledger = self.ledger.train(len(self.drawn))
        self.drawn = []
