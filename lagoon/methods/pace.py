"""PACE: groups are given up when too many wait, those first whose basis the policy has left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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
    """Pool-aware control of effective staleness (arXiv:2609.36830): GRPO on the oldest groups of a
    pool that is held near a target size.

    What is in excess of the target, smoothed, is a budget of groups to reject: the stalest first,
    where a version that was passed while generating counts only as far as the policy has moved on
    what was said before it. The loss is that of GRPO. Before each update the trainer scores the
    ready groups under the present policy: one forward pass over the pool.
    """

    title = "PACE (asynchronous GRPO)"
    paper = "2609.36830"

    name: Literal["pace"] = "pace"

    pool_target: int | None = Field(None, ge=1)
    """Groups that should be ready when an update begins, its own batch among them; more make a
    budget of rejections. Not below num_prompts. Empty takes twice num_prompts (ours)."""
    gamma: float = Field(4.0, ge=0)
    """How sharply the percentile of the drift is weighed: 0 ranks by age alone, a large one only
    punishes those that drifted the most."""
    smoothing: float = Field(0.9, ge=0, lt=1)
    """Share of the rejection rate that is carried from one update to the next (ours)."""
    excess: Excess = "of_pool"
    """What the excess is a share of: of the pool, so that one application in full returns to the
    target (ours), or of the target, at most 1."""

    @property
    def _settings(self) -> PaceSettings:
        return PaceSettings(
            batch_size=self.num_prompts,
            target=self.target_size,
            gamma=self.gamma,
            smoothing=self.smoothing,
            excess=self.excess,
        )

    @property
    def target_size(self) -> int:
        """As configured."""
        return 2 * self.num_prompts if self.pool_target is None else self.pool_target

    def clashes(self, config: RunConfig) -> list[Clash]:
        """A target at which no batch is ready."""
        found = super().clashes(config)
        if self.target_size < self.num_prompts:
            message = (
                f"with {self.target_size} groups ready no batch of {self.num_prompts} is: the "
                "target is at least a batch"
            )
            found.append(Clash(("method.pool_target", "method.num_prompts"), message))
        return found

    @property
    def staleness_bound(self) -> None:
        """None: the pool's size bounds the wait."""
        return

    @property
    def needs_behavior(self) -> bool:
        """Always: drift is measured from what the tokens were sampled with."""
        return True

    @property
    def scores_pool(self) -> bool:
        """The drift of what waits needs its present log-probabilities."""
        return True

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        """Reject as many as the budget allows, the largest effective staleness first; train on the
        oldest of the rest. What cannot be ranked is dropped first; a group that was completed while
        the others were scored stays for the next update."""
        reasons = {
            at: reason
            for at, pooled in enumerate(pool)
            if (reason := pooled.why_dropped(version, hard_bound=math.inf, needs_behavior=True))
        }
        places = [
            at
            for at, pooled in enumerate(pool)
            if at not in reasons and (pooled.logprobs or pooled.worst(version) == 0)
        ]
        ranked = [_candidates(pool[at], version, memory.get("noise", 0.0)) for at in places]
        state, choice = decide(self._settings, PaceState(**memory), ranked)
        rejected = {
            places[at]: reason for at, reason in zip(choice.reject, choice.reasons, strict=True)
        }
        found = rejection(ranked, choice, self.num_prompts)
        return Selection(
            drawn=tuple(places[at] for at in choice.train),
            dropped=reasons | rejected,
            memory=asdict(state),
            points=tuple(rejection_points(choice, found)) if choice.train else (),
        )

    def remember(self, memory: Mapping[str, float], found: Drift) -> Mapping[str, float]:
        """How far engine and trainer differ at one version: less than that is no drift."""
        if found.mismatch is None:
            return memory
        return asdict(replace(PaceState(**memory), noise=found.mismatch.logprob_abs))


def _candidates(pooled: PooledGroup, version: int, noise: float) -> list[Candidate]:
    trajectories = pooled.group.trajectories
    # Nothing was scored where nothing is older than the present version: nothing is compared there.
    scores = pooled.logprobs or [(math.nan,) * one.num_actions for one in trajectories]
    return [
        candidate(one, logprobs, version, noise=noise)
        for one, logprobs in zip(trajectories, scores, strict=True)
    ]
