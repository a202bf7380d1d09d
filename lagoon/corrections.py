"""Corrections for tokens that another policy sampled: what multiplies ``A grad log pi`` of each.

::

    behavior log-probabilities ──┐
    proximal ones (decoupled) ───┼─▶ ratios ─▶ correction ─▶ weight of each token, and which ones
    current ones ────────────────┘             (a band)      were cut, on which side

With ``rho`` = current over behavior policy and a band from ``low`` to ``high``::

    none        1
    clip        rho; 0 when A > 0 and rho > high, or A < 0 and rho < low         arXiv:1707.06347
    tis         min(rho, high)                                     truncated importance sampling
    icepop      rho where low <= rho <= high, else 0
    dis         rho where low < rho < high, else 0: strict, whatever the advantage
                                                                                 arXiv:2607.07508
    cispo       rho moved into the band, never 0                                 arXiv:2506.13585
    decoupled   min(proximal / behavior, cap) * clip of current / proximal       arXiv:2505.24298
    geometric   rho where exp(mean log rho) of the trajectory is in the band, else 0 for all of it

The weights are constants: no gradient flows through them. At ``rho`` = 1 all of them are 1. Bounds
are on the ratio itself: a paper's ``1 - eps_low`` and ``1 + eps_high``.

Ours, where sources leave it open: the default band of ``cispo`` and cap of ``decoupled``, and that
``geometric`` weighs the tokens that it keeps with their own ``rho``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lagoon.losses import ImportanceWeights, Loss, TokenBatch
from lagoon.metrics import CLIPPED, MASKED

if TYPE_CHECKING:
    from torch import Tensor

CorrectionName = Literal["none", "clip", "tis", "icepop", "dis", "cispo", "decoupled", "geometric"]
MAX_LOG_RATIO = 20.0
"""Log-ratios are held within this distance of 0, so that no weight is infinite."""


@dataclass(frozen=True, slots=True)
class Band:
    """The bounds of a correction. Raises ``ValueError`` for a band that does not hold the ratio 1,
    at which nothing may be corrected."""

    low: float = 0.0
    high: float = float("inf")
    cap: float = float("inf")
    """Largest weight of the proximal over the behavior policy."""

    def __post_init__(self) -> None:
        if not (0 <= self.low < 1 < self.high and self.cap >= 1):
            raise ValueError(
                f"the band from {self.low:g} to {self.high:g}, cap {self.cap:g}, must hold the "
                "ratio 1 between its bounds"
            )


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction, and what it needs."""

    title: str
    weigh: Callable[[TokenBatch, Band], ImportanceWeights]
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Its bounds, by their names in ``Band``, with their defaults. Others have no effect."""
    needs_behavior: bool = True
    """Whether it reads the behavior log-probabilities, which are then to be those of the
    distribution that was sampled from."""
    needs_proximal: bool = False
    """Whether it reads the proximal log-probabilities."""

    def band(self, **bounds: float | None) -> Band:
        """Its band, with ``bounds`` in the place of defaults where they are not None.

        Raises ``ValueError`` for a bound without effect, and for a band that does not hold 1.
        """
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        if wrong := self.without_effect(**bounds):
            raise ValueError(f"{self.title} has no bound {wrong[0]!r}")
        return Band(**{**self.bounds, **given})

    def without_effect(self, **bounds: float | None) -> list[str]:
        """The names of those ``bounds`` that are set and that it does not have."""
        return [
            name for name, bound in bounds.items() if bound is not None and name not in self.bounds
        ]


def corrected_surrogate(batch: TokenBatch, correction: Correction, band: Band) -> Loss:
    """``-sum w * weight * A``, whose gradient is ``-sum w * weight * A * grad log pi``.

    ``w`` is the divisor of the batch (``batch.weights``): masked tokens count in it.
    Raises ``ValueError`` when the batch lacks what the correction needs.
    """
    importance = correction.weigh(batch, band)
    # exp(0) = 1, with the gradient of log pi: the value shown is that of the surrogate.
    score = (batch.logprobs - batch.logprobs.detach()).exp()
    value = -(importance.values * batch.advantages * batch.weights * score).sum()
    active = batch.weights != 0
    count = float(active.sum())
    shown = {CLIPPED: importance.is_cut, MASKED: importance.is_masked}
    sums = {metric: (float((cut & active).sum()), count) for metric, cut in shown.items()}
    return Loss(value, sums, importance)


def _log_ratio(logprobs: Tensor, others: Tensor) -> Tensor:
    return (logprobs.detach() - others).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _rho(batch: TokenBatch) -> Tensor:
    return _log_ratio(batch.logprobs, batch.behavior_logprobs).exp()


def _uncut(values: Tensor) -> ImportanceWeights:
    nowhere = values < 0
    return ImportanceWeights(values, nowhere, nowhere)


def _masked(ratio: Tensor, below: Tensor, above: Tensor) -> ImportanceWeights:
    return ImportanceWeights(ratio * ~(below | above), below, above)


def _none(batch: TokenBatch, band: Band) -> ImportanceWeights:
    return _uncut(batch.logprobs.detach() * 0 + 1)


def _clipped(ratio: Tensor, advantages: Tensor, band: Band) -> ImportanceWeights:
    below = (ratio < band.low) & (advantages < 0)
    above = (ratio > band.high) & (advantages > 0)
    return _masked(ratio, below, above)


def _clip(batch: TokenBatch, band: Band) -> ImportanceWeights:
    return _clipped(_rho(batch), batch.advantages, band)


def _moved_into_band(batch: TokenBatch, band: Band) -> ImportanceWeights:
    ratio = _rho(batch)
    values = ratio.clamp(band.low, band.high)
    return ImportanceWeights(values, ratio < band.low, ratio > band.high)


def _icepop(batch: TokenBatch, band: Band) -> ImportanceWeights:
    ratio = _rho(batch)
    return _masked(ratio, ratio < band.low, ratio > band.high)


def _dis(batch: TokenBatch, band: Band) -> ImportanceWeights:
    ratio = _rho(batch)
    return _masked(ratio, ratio <= band.low, ratio >= band.high)


def _decoupled(batch: TokenBatch, band: Band) -> ImportanceWeights:
    proximal = batch.proximal_logprobs
    if proximal is None:
        raise ValueError("the batch has no proximal log-probabilities")
    lag = _log_ratio(proximal, batch.behavior_logprobs).exp()
    trust = _clipped(_log_ratio(batch.logprobs, proximal).exp(), batch.advantages, band)
    values = lag.clamp(max=band.cap) * trust.values
    is_capped = (lag > band.cap) & ~trust.below
    return ImportanceWeights(values, trust.below, trust.above | is_capped)


def _geometric(batch: TokenBatch, band: Band) -> ImportanceWeights:
    if batch.trajectories is None:
        raise ValueError("the batch does not say which trajectory its tokens are of")
    log_ratio = _log_ratio(batch.logprobs, batch.behavior_logprobs)
    active = batch.weights != 0
    owners = (batch.trajectories * active).flatten()
    size = int(owners.max()) + 1 if owners.numel() else 0
    sums = log_ratio.new_zeros(size).index_add(0, owners, (log_ratio * active).flatten())
    counts = log_ratio.new_zeros(size).index_add(0, owners, active.flatten().to(log_ratio.dtype))
    means = (sums / counts.clamp(min=1)).exp()[owners].reshape(log_ratio.shape)
    return _masked(log_ratio.exp(), (means < band.low) & active, (means > band.high) & active)


CORRECTIONS: Mapping[CorrectionName, Correction] = {
    "none": Correction("no correction", _none, needs_behavior=False),
    "clip": Correction("the clipped ratio", _clip, {"low": 0.8, "high": 1.2}),
    "tis": Correction("truncated importance sampling", _moved_into_band, {"high": 2.0}),
    "icepop": Correction("IcePop", _icepop, {"low": 0.5, "high": 5.0}),
    "dis": Correction("the strict double-sided mask", _dis, {"low": 0.7, "high": 6.0}),
    "cispo": Correction("CISPO", _moved_into_band, {"low": 0.0, "high": 5.0}),
    "decoupled": Correction(
        "decoupled PPO",
        _decoupled,
        {"low": 0.8, "high": 1.2, "cap": 5.0},
        needs_proximal=True,
    ),
    "geometric": Correction("the geometric mask", _geometric, {"low": 0.99, "high": 1.01}),
}
"""Every correction, by name."""


def interpolated_proximal(
    logprobs: Tensor, behavior_logprobs: Tensor, versions: Tensor, version: int
) -> Tensor:
    """Proximal log-probabilities without a forward pass: those of ``version - 1``, on the straight
    line in log space from the behavior policy's to the current one's (arXiv:2505.24298).

    ``versions`` is what sampled each token, -1 where unknown; ``version`` is the current policy's.
    A token sampled at ``version - 1`` or later keeps the behavior policy's, and so does one of
    unknown version, which is dropped before it comes here (``lagoon/screening.py``).
    """
    age = (version - versions).clamp(min=1).to(logprobs.dtype)
    share = (1 - 1 / age) * (versions >= 0)
    return behavior_logprobs + share * (logprobs.detach() - behavior_logprobs)
