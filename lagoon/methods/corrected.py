"""What methods share whose tokens may come from an older policy: the choice of a correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.corrections import CORRECTIONS, Band, Correction, CorrectionName, corrected_surrogate
from lagoon.methods.base import PolicyGradient

if TYPE_CHECKING:
    from lagoon.config import RunConfig
    from lagoon.losses import Loss, TokenBatch


class Corrected(PolicyGradient):
    """A method that weighs each token by how likely the present policy is to sample it
    (``lagoon/corrections.py`` has the formulas and their papers)."""

    correction: CorrectionName = "clip"
    """What multiplies the gradient of each token. With r = present over behavior policy: "none" is
    1; "clip" is r, and 0 once r has left the band in the direction that its advantage pushes to;
    "tis" is r, at most the upper bound; "icepop" and "dis" are r inside the band and 0 outside
    ("dis" also on its edge); "cispo" is r moved into the band; "decoupled" weighs the policy of one
    update ago over the behavior policy, and clips the present one over that (where that policy's
    log-probabilities are taken from a straight line between the two); "geometric" gives up
    trajectories whose mean ratio, the geometric one, is out of the band, and weighs what it keeps
    with r (ours). Which is best is measured, not known."""
    ratio_low: float | None = Field(None, ge=0, lt=1)
    """Lower bound of the ratio. Empty takes the correction's own: clip 0.8, icepop 0.5, dis 0.7,
    cispo 0, decoupled 0.8, geometric 0.99."""
    ratio_high: float | None = Field(None, gt=1)
    """Upper bound of the ratio. Empty takes the correction's own: clip 1.2, tis 2, icepop 5, dis 6,
    cispo 5 (ours), decoupled 1.2, geometric 1.01."""
    ratio_cap: float | None = Field(None, ge=1)
    """Largest weight of the policy of one update ago over the behavior policy; only with
    "decoupled". Empty takes 5 (ours)."""

    @property
    def _correction(self) -> Correction:
        return CORRECTIONS[self.correction]

    @property
    def _bounds(self) -> dict[str, float | None]:
        return {"low": self.ratio_low, "high": self.ratio_high, "cap": self.ratio_cap}

    @property
    def band(self) -> Band:
        """The bounds of the correction."""
        return self._correction.band(**self._bounds)

    def clashes(self, config: RunConfig) -> list[Clash]:
        """Bounds that the chosen correction does not have."""
        title = self._correction.title
        return super().clashes(config) + [
            Clash(
                (f"method.ratio_{name}", "method.correction"),
                f"{title} has no such bound: ratio_{name} has no effect",
            )
            for name in self._correction.without_effect(**self._bounds)
        ]

    @property
    def needs_behavior(self) -> bool:
        """As the correction does."""
        return self._correction.needs_behavior

    @property
    def needs_proximal(self) -> bool:
        """As the correction does."""
        return self._correction.needs_proximal

    def surrogate(self, batch: TokenBatch) -> Loss:
        """The policy's part of the loss: advantages times corrected gradients."""
        return corrected_surrogate(batch, self._correction, self.band)
