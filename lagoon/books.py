"""The ledgers of prompts and of tokens, moved together, and what became of finished trajectories.

::

    issue ─▶ generating ─▶ ready ─▶ reserved ─▶ trained
                 │           │  ◀─────┤ put back
                 └───────────┴──▶ dropped, for a reason

Tokens enter their ledger when they are known to have been sampled: with the end of their episode.
Those of a group of which others are still being played are generating. A group is moved as a whole;
a single trajectory of it can be dropped as long as others are left: its prompt goes on without it.

Length bias (ours): mean length of the trajectories that were trained on over the mean length of
all that were trained on or dropped, less 1. Below 0 the policy learns from shorter work than it
did. One that was cut off counts with what it had sampled.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lagoon.ledger import Ledger
from lagoon.metrics import (
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    LEDGER_TRAINED_TRAJECTORIES,
    Metric,
)
from lagoon.points import Point, point
from lagoon.trajectory import Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Tally:
    """Trajectories that met one fate."""

    trajectories: int = 0
    successes: int = 0
    tokens: int = 0
    """Sampled ones."""

    def points(self, metric: Metric, **labels: str) -> list[Point]:
        """The trajectories by outcome."""
        outcomes = {"success": self.successes, "failure": self.trajectories - self.successes}
        return [point(metric, count, **labels, outcome=name) for name, count in outcomes.items()]

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.trajectories + other.trajectories,
            self.successes + other.successes,
            self.tokens + other.tokens,
        )


def tally(trajectories: Iterable[Trajectory]) -> Tally:
    """Count ``trajectories``."""
    counted = [Tally(1, int(one.success), one.num_actions) for one in trajectories]
    return sum(counted, Tally())


def length_bias(trained: Tally, dropped: Tally) -> float:
    """How much longer trained trajectories are than all, as a share; NaN when none has tokens."""
    finished = trained + dropped
    if not (trained.trajectories and finished.tokens):
        return math.nan
    mean_trained = trained.tokens / trained.trajectories
    return mean_trained / (finished.tokens / finished.trajectories) - 1.0


@dataclass(frozen=True, slots=True)
class Books:
    """Both ledgers and the tallies. Every move returns new books, or raises ``ValueError`` when a
    ledger would not balance."""

    prompts: Ledger = field(default_factory=Ledger)
    tokens: Ledger = field(default_factory=Ledger)
    trained: Tally = field(default_factory=Tally)
    dropped: dict[str, Tally] = field(default_factory=dict)
    """By reason."""

    @property
    def length_bias(self) -> float:
        """That of everything so far."""
        return length_bias(self.trained, sum(self.dropped.values(), Tally()))

    def issue(self, count: int = 1) -> "Books":
        """Prompts leave the prompt source and start generating."""
        return replace(self, prompts=self.prompts.issue(count))

    def sample(self, num_tokens: int) -> "Books":
        """Tokens of prompts that are being generated were sampled."""
        return replace(self, tokens=self.tokens.issue(num_tokens))

    def complete(self, group: TrajectoryGroup) -> "Books":
        """A generating prompt became a ready group; its tokens were counted as sampled."""
        return self._moved(
            self.prompts.complete(), self.tokens.complete(tally(group.trajectories).tokens)
        )

    def reserve(self, groups: Sequence[TrajectoryGroup]) -> "Books":
        """Ready groups were drawn for an update."""
        return self._moved(self.prompts.reserve(len(groups)), self.tokens.reserve(_tokens(groups)))

    def put_back(self, groups: Sequence[TrajectoryGroup]) -> "Books":
        """Drawn groups that were not trained on are ready again."""
        return self._moved(
            self.prompts.put_back(len(groups)), self.tokens.put_back(_tokens(groups))
        )

    def train(self, groups: Sequence[TrajectoryGroup]) -> "Books":
        """Reserved groups were trained on."""
        moved = self._moved(self.prompts.train(len(groups)), self.tokens.train(_tokens(groups)))
        return replace(moved, trained=self.trained + _of(groups))

    def give_up(self, reason: str, unfinished: Sequence[Trajectory] = ()) -> "Books":
        """A generating prompt was given up, with what its trajectories had sampled."""
        lost = tally(unfinished)
        return self._dropped(
            reason,
            lost,
            self.prompts.drop(reason, generating=1),
            self.tokens.drop(reason, generating=lost.tokens),
        )

    def drop_ready(self, reason: str, groups: Sequence[TrajectoryGroup]) -> "Books":
        """Ready groups were given up."""
        return self._dropped(
            reason,
            _of(groups),
            self.prompts.drop(reason, ready=len(groups)),
            self.tokens.drop(reason, ready=_tokens(groups)),
        )

    def drop_member(self, reason: str, trajectory: Trajectory) -> "Books":
        """One trajectory of a generating prompt was given up; its prompt goes on without it."""
        return self._dropped(
            reason,
            tally([trajectory]),
            self.prompts,
            self.tokens.drop(reason, generating=trajectory.num_actions),
        )

    def _moved(self, prompts: Ledger, tokens: Ledger) -> "Books":
        return replace(self, prompts=prompts, tokens=tokens)

    def _dropped(self, reason: str, lost: Tally, prompts: Ledger, tokens: Ledger) -> "Books":
        dropped = self.dropped | {reason: self.dropped.get(reason, Tally()) + lost}
        return replace(self, prompts=prompts, tokens=tokens, dropped=dropped)


def _of(groups: Sequence[TrajectoryGroup]) -> Tally:
    return tally(trajectory for group in groups for trajectory in group.trajectories)


def _tokens(groups: Sequence[TrajectoryGroup]) -> int:
    return _of(groups).tokens


def token_points(books: Books) -> list[Point]:
    """The token ledger and the fates as metrics; the prompts' are reported beside them."""
    tokens = books.tokens
    places = {
        "issued": tokens.issued,
        "trained": tokens.trained,
        "generating": tokens.generating,
        "ready": tokens.ready,
        "reserved": tokens.reserved,
    }
    points = [point(LEDGER_TOKENS, count, place=place) for place, count in places.items()]
    for reason, count in tokens.dropped.items():
        points.append(point(LEDGER_TOKENS_DROPPED, count, reason=reason))
    points += books.trained.points(LEDGER_TRAINED_TRAJECTORIES)
    for reason, lost in books.dropped.items():
        points += lost.points(LEDGER_DROPPED_TRAJECTORIES, reason=reason)
    if not math.isnan(books.length_bias):
        points.append(point(LEDGER_LENGTH_BIAS, books.length_bias))
    return points
