"""How far the policy that is trained is from the one that sampled, by its two causes.

::

    token sampled at the trained version   mismatch   engine against trainer: numbers, not learning
    token sampled at an earlier version    lag        old against new weights
    version or log-probability missing     unknown    counted, in no other figure

Both compare the trainer's log-probability of a token, just before the update, with the generator's
when it was sampled. What a figure for lag holds of the engine's numbers is what ``mismatch`` says
of the tokens beside it. When every token is stale there is no mismatch to report: it is left out,
not zero.

Only tokens that the policy sampled are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lagoon.metrics import (
    DRIFT_CLIPPED,
    DRIFT_EFFECTIVE_SAMPLES,
    DRIFT_KL,
    DRIFT_LOGPROB_ABS,
    DRIFT_MASKED,
    DRIFT_RATIO,
    DRIFT_TOKENS,
)
from lagoon.points import Point, point
from lagoon.trajectory import Trajectory

Cause = Literal["mismatch", "lag"]
QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
_TOKEN = np.dtype(
    [
        ("version", np.int64),
        ("log_ratio", np.float64),
        ("below", np.bool_),
        ("above", np.bool_),
        ("masked", np.bool_),
    ]
)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What the trainer found of the tokens of one trajectory that the policy sampled, in order."""

    logprobs: Sequence[float]
    """Under the weights before the update."""
    below: Sequence[bool] = ()
    """Where a correction cut the ratio because it was too low; empty without one."""
    above: Sequence[bool] = ()
    """Where it cut the ratio because it was too high."""
    masked: Sequence[bool] = ()
    """Where its cut left a weight of 0."""


@dataclass(frozen=True, slots=True)
class Sides:
    """A share of the tokens, by the side that their ratio was out on."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Divergence:
    """The trained policy against the one that sampled, over tokens of one cause."""

    num_tokens: int
    logprob_abs: float
    """Mean distance of the log-probabilities."""
    kl: float
    """Mean of ``r - log r - 1``, r = current over behavior, over tokens that the behavior policy
    sampled: an estimate of KL(behavior || current)."""
    ratio_quantiles: dict[float, float]
    effective_samples: float
    """Kish's effective sample size under the ratios, as a share of the tokens."""
    clipped: Sides
    """Tokens whose ratio was cut, masked ones included."""
    masked: Sides
    """Tokens that were given weight 0."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The divergences of one update's tokens; None where a cause has no token."""

    mismatch: Divergence | None
    lag: Divergence | None
    num_unknown: int
    """Tokens whose version or log-probability is missing."""


def drift(
    trajectories: Sequence[Trajectory], scores: Sequence[TokenScores], trained_version: int
) -> Drift:
    """Compare an update's ``scores``, one for each of ``trajectories``, with what sampled them.

    Raises ``ValueError`` when a trajectory's scores are not as many as its sampled tokens.
    """
    parts = [
        _scored(trajectory, found)
        for trajectory, found in zip(trajectories, scores, strict=True)
        if trajectory.num_actions
    ]
    if not parts:
        return Drift(None, None, 0)
    tokens = np.concatenate(parts)
    known = np.isfinite(tokens["log_ratio"])
    known &= (tokens["version"] >= 0) & (tokens["version"] <= trained_version)
    is_old = tokens["version"] < trained_version
    return Drift(
        mismatch=_divergence(tokens[known & ~is_old]),
        lag=_divergence(tokens[known & is_old]),
        num_unknown=int((~known).sum()),
    )


def drift_points(found: Drift) -> list[Point]:
    """The drift as metrics, labelled with their cause."""
    points = [point(DRIFT_TOKENS, found.num_unknown, cause="unknown")]
    by_cause: dict[Cause, Divergence | None] = {"mismatch": found.mismatch, "lag": found.lag}
    for cause, divergence in by_cause.items():
        if divergence is None:
            points.append(point(DRIFT_TOKENS, 0, cause=cause))
        else:
            points += _points(divergence, cause)
    return points


def effective_samples(weights: ArrayLike) -> float:
    """Kish's effective sample size as a share: ``(sum w)^2 / (n sum w^2)``.

    NaN when no weight is above 0.
    """
    values = np.asarray(weights, dtype=np.float64)
    if not values.size or values.max() <= 0:
        return math.nan
    scaled = values / values.max()
    return float(scaled.sum() ** 2 / (scaled.size * (scaled**2).sum()))


def _scored(trajectory: Trajectory, found: TokenScores) -> NDArray[np.void]:
    """The sampled tokens of one trajectory, an element each."""
    sampled = np.flatnonzero(trajectory.action_mask)
    tokens = np.zeros(len(sampled), dtype=_TOKEN)
    versions = [-1 if version is None else version for version in trajectory.versions]
    tokens["version"] = np.asarray(versions)[sampled]
    behavior = np.asarray(trajectory.behavior_logprobs, dtype=np.float64)[sampled]
    tokens["log_ratio"] = _as_many(found.logprobs, tokens) - behavior
    for name, cut in (("below", found.below), ("above", found.above), ("masked", found.masked)):
        tokens[name] = _as_many(cut, tokens) if len(cut) else False
    return tokens


def _as_many(values: Sequence[float], tokens: NDArray[np.void]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != tokens.shape:
        raise ValueError(f"{len(array)} scores for {len(tokens)} sampled tokens")
    return array


def _divergence(tokens: NDArray[np.void]) -> Divergence | None:
    if not len(tokens):
        return None
    log_ratio = tokens["log_ratio"]
    with np.errstate(over="ignore"):  # a ratio beyond float64 is infinite, and shown as that
        ratio = np.exp(log_ratio)
    quantiles = np.quantile(log_ratio, QUANTILES)
    return Divergence(
        num_tokens=len(tokens),
        logprob_abs=float(np.abs(log_ratio).mean()),
        kl=float((ratio - log_ratio - 1.0).mean()),
        ratio_quantiles=dict(zip(QUANTILES, map(float, np.exp(quantiles)), strict=True)),
        effective_samples=effective_samples(np.exp(log_ratio - log_ratio.max())),
        clipped=Sides(float(tokens["below"].mean()), float(tokens["above"].mean())),
        masked=Sides(
            float((tokens["below"] & tokens["masked"]).mean()),
            float((tokens["above"] & tokens["masked"]).mean()),
        ),
    )


def _points(found: Divergence, cause: Cause) -> Iterator[Point]:
    yield point(DRIFT_TOKENS, found.num_tokens, cause=cause)
    yield point(DRIFT_LOGPROB_ABS, found.logprob_abs, cause=cause)
    yield point(DRIFT_KL, found.kl, cause=cause)
    yield point(DRIFT_EFFECTIVE_SAMPLES, found.effective_samples, cause=cause)
    for quantile, ratio in found.ratio_quantiles.items():
        yield point(DRIFT_RATIO, ratio, cause=cause, quantile=f"{quantile:g}")
    for metric, sides in ((DRIFT_CLIPPED, found.clipped), (DRIFT_MASKED, found.masked)):
        yield point(metric, sides.low, cause=cause, side="low")
        yield point(metric, sides.high, cause=cause, side="high")
