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


class Pace(Corrected, GroupRelative):
    """Pool-Aware Control of Effective Staleness (arXiv:2609.36830), on asynchronous GRPO.

    A pool that holds more than its target gives up groups, at a smoothed rate, those first that
    wait longest and whose prefix the policy has drifted from most. Admission is not bounded, and
    the loss is unchanged.
    """

    title = "PACE"
    paper = "2609.36830"
    live = ("target", "gamma")

    name: Literal["pace"] = "pace"

    target: int = Field(32, ge=1, le=1_000_000)
    """Groups that should be ready when an update begins, at least num_prompts: about target /
    num_prompts updates of waiting. Ours: the paper's is not known."""
    gamma: float = Field(4.0, ge=0)
    """How sharply the drift of a group's prefix counts; 0 ranks by age alone."""
    smoothing: float = Field(0.9, ge=0, lt=1)
    """Share of the rejection rate that is carried from one update to the next. Ours."""
    excess: Excess = "of_pool"
    """What the excess is a share of: of the pool, so that one application in full returns to the
    target, or of the target, at most 1. Ours, where the paper's digest leaves it open."""

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
        """The drift of a prefix is what the trainer makes of it now."""
        return True

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        """The oldest groups that the controller keeps; ``memory`` is its state, and the noise of
        the numbers when it was last seen."""
        noise = _noise(pool, version, memory.get("noise", 0.0))
        known = [at for at, pooled in enumerate(pool) if pooled.has_versions]
        unknown = {at: "versions_missing" for at in range(len(pool)) if at not in known}
        seen = [_candidates(pool[at], version, noise) for at in known]
        before = PaceState(memory.get("rate", 0.0), memory.get("carry", 0.0))
        state, choice = decide(self._settings(), before, seen)
        if not choice.train:
            return Selection((), unknown, memory)
        rejected = {known[at]: why for at, why in zip(choice.reject, choice.reasons, strict=True)}
        found = rejection(seen, choice, self.num_prompts)
        return Selection(
            tuple(known[at] for at in choice.train),
            unknown | rejected,
            {"rate": state.rate, "carry": state.carry, "noise": noise},
            tuple(rejection_points(choice, found)),
        )

    def _settings(self) -> PaceSettings:
        return PaceSettings(self.num_prompts, self.target, self.gamma, self.smoothing, self.excess)


def _candidates(pooled: PooledGroup, version: int, noise: float) -> list[Candidate]:
    return [
        candidate(trajectory, scores, version, noise=noise)
        for trajectory, scores in pooled.scored
        if trajectory.num_actions
    ]


def _noise(pool: Sequence[PooledGroup], version: int, otherwise: float) -> float:
    """Mean distance of the log-probabilities of tokens that the present version sampled: that of
    two programs. ``otherwise`` where there are none."""
    moves = [
        abs(score - behavior)
        for pooled in pool
        for trajectory, scores in pooled.scored
        for (born, behavior), score in zip(trajectory.sampled, scores, strict=True)
        if born == version
    ]
    return sum(moves) / len(moves) if moves else otherwise
