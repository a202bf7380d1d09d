"""The pool: where the prompts of a policy-gradient run are, and the groups that wait for training.

::

    issue ─▶ generating ─▶ complete ─▶ ready ─▶ draw ─▶ reserved ─▶ trained
                 │                       └──────▶ dropped, with a reason
                 └────────────────────────────────▲

Every move goes through the books, ledgers of prompts and of tokens that refuse one that does not
balance. Tokens enter theirs when an episode comes back, and are generating until its group is whole
or lost; what is being played meanwhile only its generator knows.

A method that needs scores is shown what the trainer's policy makes of the pool's tokens, for one
forward pass over each trajectory that a new version came into, at the version that first looks at
it; a method that rescores has one of every trajectory at each later version. Where the present
version sampled every token there is nothing to ask: lag is the distance between two versions, and
that of one from itself is 0. Its score is its behavior log-probability, and not the trainer's,
which differs from it by the numbers of two programs alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from lagoon.books import Books
from lagoon.drift import Drift
from lagoon.ledger import Ledger
from lagoon.methods import PolicyGradient
from lagoon.metrics import POOL_OFFERED
from lagoon.points import Point, point
from lagoon.screening import GROUP_LOST, UNTRAINABLE, why_dropped
from lagoon.selection import PooledGroup
from lagoon.trajectory import Trajectory, TrajectoryGroup
from workers.failures import RunFailed
from workers.loops.state import LoopState

MAX_IN_VAIN = 256
"""Prompts in a row that may give nothing to train on. More are no bad luck, and the run would go
on without a step for ever."""

Score = Callable[[Sequence[Trajectory]], Awaitable[Sequence[Sequence[float]]]]
"""The log-probabilities of each trajectory's own tokens under the trainer's present policy."""


class Pool:
    """Prompts by where they are. It begins as a checkpoint has it."""

    def __init__(self, begins: LoopState) -> None:
        waiting = sum(one.num_actions for group in begins.pool for one in group.trajectories)
        tokens = begins.tokens or Ledger(issued=waiting, ready=waiting)
        self.books = Books(begins.ledger, tokens, begins.trained, begins.lost)
        self.ready: list[PooledGroup] = [PooledGroup.of(group) for group in begins.pool]
        """Finished groups that wait for an update, in the order in which they were finished."""
        self.drawn: list[TrajectoryGroup] = []
        """The groups of the update that is being made."""
        self._num_in_vain = 0
        """Prompts in a row that gave nothing to train on."""
        self.points: tuple[Point, ...] = ()
        """What the method reports of how the batch was drawn."""
        self.memory: Mapping[str, float] = begins.memory
        """What the method's last selection left for the next."""

    @property
    def groups(self) -> tuple[TrajectoryGroup, ...]:
        """All groups that were not trained on yet. A drawn batch belongs to them."""
        return (*self.drawn, *(pooled.group for pooled in self.ready))

    @property
    def ledger(self) -> Ledger:
        """That of prompts."""
        return self.books.prompts

    def books_between_updates(self, unfinished: Iterable[Trajectory]) -> Books:
        """The books with the drawn batch put back, and without the ``unfinished``: trajectories
        whose groups are played again by whoever goes on from here."""
        return _lost(self.books.put_back(self.drawn), unfinished)

    def issue(self) -> int:
        """The position, in the run's prompt order, of the next new prompt."""
        self.books = self.books.issue()
        return self.ledger.issued - 1

    def came_back(self, trajectory: Trajectory) -> None:
        """A trajectory of a prompt in flight is finished; others of it may not be."""
        self.books = self.books.sample(trajectory.num_actions)

    def complete(self, method: PolicyGradient, group: TrajectoryGroup) -> None:
        """A prompt's trajectories have all come back; those that may not be trained on are dropped.

        What is left must still be a group, where the method compares trajectories, or the prompt
        gives nothing to train on. Raises ``RunFailed`` when none gives anything any more.
        """
        books, whole, reason = self.books, [], ""
        for each in group.trajectories:
            # Proximal log-probabilities are made of the age of each token.
            wrong = why_dropped(
                each, needs_behavior=method.needs_behavior, needs_versions=method.needs_proximal
            )
            if wrong is None:
                whole.append(each)
            else:
                reason, books = wrong, books.drop_member(wrong, each)
        if len(whole) < min(2, method.trajectories_per_prompt):
            self.books = books.give_up(reason, whole)
            self._note_in_vain(reason)
            return
        self._num_in_vain = 0
        kept = TrajectoryGroup(group.prompt_id, tuple(whole))
        self.books = books.complete(kept)
        self.ready.append(PooledGroup.of(kept))

    def _note_in_vain(self, reason: str) -> None:
        self._num_in_vain += 1
        if self._num_in_vain >= MAX_IN_VAIN:
            raise RunFailed(
                f"{self._num_in_vain} prompts in a row gave nothing to train on; of the last, "
                f"{UNTRAINABLE[reason]}."
            )

    def lose(self, finished: Sequence[Trajectory]) -> None:
        """A prompt in flight is played again from its beginning: what was finished is dropped."""
        self.books = _lost(self.books, finished)

    async def draw(
        self, method: PolicyGradient, version: int, score: Score
    ) -> list[TrajectoryGroup]:
        """What the method trains on at ``version``; empty when there is no batch yet.

        What it gives up leaves the pool, whether there is a batch or not. ``score`` is asked for
        methods that need it; groups that are finished meanwhile are for the next selection.
        """
        if method.needs_scores:
            if len(self.ready) < method.prompts_per_step:
                return []
            seen = await self._scored(method, version, score)
        else:
            seen = list(self.ready)
        found = method.select(seen, version, self.memory)
        for at, reason in found.dropped.items():
            self.books = self.books.drop_ready(reason, [self.ready[at].group])
        self.drawn = [self.ready[at].group for at in found.drawn]
        self.books = self.books.reserve(self.drawn)
        left = set(found.drawn) | set(found.dropped)
        self.ready = [pooled for at, pooled in enumerate(self.ready) if at not in left]
        self.memory = found.memory
        self.points = (point(POOL_OFFERED, len(seen)), *found.points)
        return self.drawn

    async def _scored(
        self, method: PolicyGradient, version: int, score: Score
    ) -> list[PooledGroup]:
        """The ready groups with their scores at ``version``; those that have them keep them, as do
        those with older ones, unless the method rescores."""
        seen = list(self.ready)
        good = (version,) if method.rescores else range(version + 1)
        unscored = [at for at, pooled in enumerate(seen) if pooled.scored_at not in good]
        members = [each for at in unscored for each in seen[at].group.trajectories]
        passed = [each for each in members if not _is_still(method, each, version)]
        found = iter(await score(passed) if passed else ())
        for at in unscored:
            scores = tuple(
                tuple(logprob for _, logprob in each.sampled)
                if _is_still(method, each, version)
                else tuple(next(found))
                for each in seen[at].group.trajectories
            )
            seen[at] = replace(seen[at], scores=scores, scored_at=version)
        self.ready[: len(seen)] = seen  # what was finished meanwhile is behind them
        return seen

    def train(self, method: PolicyGradient, drifted: Drift) -> None:
        """The drawn batch, which had ``drifted`` that far, was trained on."""
        self.books = self.books.train(self.drawn)
        self.drawn = []
        self.memory = method.remember(self.memory, drifted)


def _lost(books: Books, finished: Iterable[Trajectory]) -> Books:
    for each in finished:
        books = books.drop_member(GROUP_LOST, each)
    return books


def _is_still(method: PolicyGradient, trajectory: Trajectory, version: int) -> bool:
    """Whether nothing can have drifted under the trajectory: the present version sampled it all, or
    the version at which it was completed did, where only that much is asked."""
    return trajectory.is_of(version) or (
        not method.rescores and trajectory.is_of(trajectory.completed_version)
    )
