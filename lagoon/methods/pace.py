"""PACE: what the pool holds too much of is given up, the effectively stalest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.methods.corrected import Corrected
from lagoon.methods.grouped import GroupRelative
from lagoon.pace import Candidate, Excess, PaceSettings, PaceState, candidate, decide
from lagoon.rejections import rejection, rejection_points
from lagoon.selection import PooledGroup, Selection

if TYPE_CHECKING:
    from lagoon.config import RunConfig
    from lagoon.drift import Drift


class Pace(Corrected, GroupRelative):
    """Pool-Aware Control of Effective Staleness (arXiv:2609.36830), on asynchronous GRPO.

    A pool that holds more than its target gives up groups, at a smoothed rate, those first that
    wait longest and whose prefix the policy has drifted from most. Admission is not bounded, and
    the loss is unchanged.

    Only the paper's abstract and a digest of it were to be had. Ours, where they leave the choice:
    drift is the mean absolute change of the log-probabilities of all older tokens, and none below
    the noise of the numbers; a group has the mean score of its trajectories and is given up as a
    whole, the oldest first of equal ones; the next batch is never given up, and is made of the
    oldest that are left.
    """

    title = "PACE"
    paper = "2609.36830"
    live = ("target", "gamma")

    name: Literal["pace"] = "pace"

    target: int = Field(32, ge=1, le=1_000_000)
    """Groups that should be ready when an update begins, at least num_prompts: about target /
    num_prompts updates of waiting. Ours: the paper's is not known."""
    gamma: float = Field(4.0, ge=0)
    """How sharply the drift of a group's prefix counts; 0 ranks by age alone, 4 is the paper's.
    Ours: what drifts is the mean absolute change over all older tokens, no more than three times
    the noise between engine and trainer is none, equal drifts share the lowest percentile, a group
    has the mean score of its trajectories and goes as a whole, of equal scores the oldest."""
    smoothing: float = Field(0.9, ge=0, lt=1)
    """Share of the rejection rate that is carried from one update to the next. That the rate is
    smoothed is the paper's; 0.9, and that it begins at 0, is ours. So is what becomes of the
    budget: the fraction of a group that it leaves is kept for the next update, and what it could
    not spend because the next batch is never given up is forgotten."""
    excess: Excess = "of_pool"
    """What the excess is a share of: of the pool, so that one application in full returns to the
    target, or of the target, at most 1. Ours, where the paper's digest leaves it open."""

    rescore: bool = False
    """Ask the trainer for the drift of every waiting group again at each new version. Else a group
    keeps what it had drifted when an update first saw it, and a trajectory that one version sampled
    from beginning to end has drifted from nothing: so each costs at most one forward pass. Ours:
    what is not known is when the paper asks; after a group is finished, waiting counts in full."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A target that the next batch would not fit in."""
        found = super().clashes(config)
        if self.target < self.num_prompts:
            message = f"a target of {self.target} groups is below the batch of {self.num_prompts}"
            found.append(Clash(("method.target", "method.num_prompts"), message))
        return found

    @property
    def staleness_bound(self) -> None:
        """None: the pool is what is controlled."""
        return None

    @property
    def pool_target(self) -> int:
        """As configured."""
        return self.target

    @property
    def needs_behavior(self) -> bool:
        """Always: drift is measured from what the tokens were sampled with."""
        return True

    @property
    def needs_scores(self) -> bool:
        """The drift of a prefix is what the trainer makes of it now; what it sampled itself has
        none."""
        return True

    @property
    def rescores(self) -> bool:
        """As configured."""
        return self.rescore

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        """The oldest groups that the controller keeps; ``memory`` is its state, and the noise of
        the numbers as far as it was seen."""
        noise = memory.get("noise", 0.0)
        known = [at for at, pooled in enumerate(pool) if pooled.has_versions]
        unknown = {at: "versions_missing" for at in range(len(pool)) if at not in known}
        seen = [candidates(pool[at], version, noise) for at in known]
        before = PaceState(memory.get("rate", 0.0), memory.get("carry", 0.0))
        state, choice = decide(self._settings(), before, seen)
        if not choice.train:
            return Selection((), unknown, memory)
        rejected = {known[at]: why for at, why in zip(choice.reject, choice.reasons, strict=True)}
        found = rejection(seen, choice, self.num_prompts)
        return Selection(
            tuple(known[at] for at in choice.train),
            unknown | rejected,
            {**memory, "rate": state.rate, "carry": state.carry},
            tuple(rejection_points(choice, found)),
        )

    def remember(self, memory: Mapping[str, float], found: Drift) -> Mapping[str, float]:
        """The noise of the numbers: the mean distance of trainer and generator over all trained
        tokens that the trained version itself had sampled. Every run begins with such a batch."""
        if found.mismatch is None:
            return memory
        before, new = memory.get("noise_tokens", 0.0), found.mismatch.num_tokens
        seen = before + new
        mean = memory.get("noise", 0.0) * (before / seen) + found.mismatch.logprob_abs * (
            new / seen
        )
        return {**memory, "noise": mean, "noise_tokens": seen}

    def _settings(self) -> PaceSettings:
        return PaceSettings(self.num_prompts, self.target, self.gamma, self.smoothing, self.excess)


def candidates(pooled: PooledGroup, version: int, noise: float) -> list[Candidate]:
    """A group's trajectories as the controller sees them at ``version``."""
    return [
        candidate(trajectory, scores, version, scored_at=pooled.scored_at, noise=noise)
        for trajectory, scores in pooled.scored
        if trajectory.num_actions
    ]
