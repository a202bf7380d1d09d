"""What the two causes of drift mean at the newest step, in words. Pure: from figures to sentences.

The thresholds are rules of thumb of ours, and said to be that on the page.
"""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.words import number, percent

AGREE_KL = 1e-3
"""Below it, in nats, two programs that compute the same model differ as much as is usual."""
DISAGREE_KL = 1e-2
ENOUGH_SAMPLES = 0.8
"""Effective sample size, as a share, above which older tokens are nearly as good as new ones."""
FEW_SAMPLES = 0.5
MUCH_MASKED = 0.2

MISMATCH = (
    "Tokens that the trained version itself sampled. The weights are the same, so that all of it "
    "is numerics: other kernels, another precision, or weights that did not arrive."
)
LAG = (
    "Tokens that an older version sampled. The policy has moved on since: that is the price of "
    "asynchrony, on top of the mismatch."
)
RULES = (
    f"Worry, as a rule of thumb of ours: on the left when the KL exceeds {DISAGREE_KL:g} nats; on "
    f"the right when fewer than {FEW_SAMPLES:.0%} of the tokens are left as effective samples, or "
    f"more than {MUCH_MASKED:.0%} are masked, or either goes on getting worse."
)

Verdict = tuple[str, str, str]
"""A sentence, the figures that show it, and the kind of notice: empty, warn or bad."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """One cause at the last step that had tokens of it."""

    step: int
    is_newest: bool
    """That step is the newest of all."""
    num_tokens: float
    kl: float
    effective_samples: float
    clipped: float
    """Share of the tokens, both sides, masked ones included."""
    masked: float


def mismatch_verdict(found: Drifted | None) -> Verdict:
    """Engine against trainer."""
    if found is None:
        return (
            "Nothing to compare yet.",
            "No trained token was as young as the version that was trained.",
            "",
        )
    if found.kl >= DISAGREE_KL:
        return (
            "Engine and trainer disagree about the same weights.",
            f"{_figures(found)} No correction for age cures this: look at precision, at sampling, "
            "and at whether published weights were proved (sync, in the tab Learning).",
            "warn",
        )
    if found.kl >= AGREE_KL:
        return "Engine and trainer differ a little.", _figures(found), ""
    return "Engine and trainer agree.", _figures(found), ""


def lag_verdict(found: Drifted | None, num_unknown: float = 0.0) -> Verdict:
    """Older weights against new; ``num_unknown`` tokens of the newest step are in neither cause."""
    if found is None or not found.is_newest:
        if num_unknown:
            return (
                "No stale token could be compared at the newest step.",
                "All of its tokens whose version and log-probability are known were sampled by the "
                "version that was trained.",
                "",
            )
        return (
            "Nothing stale was trained on at the newest step.",
            "All of its tokens were sampled by the version that was trained.",
            "",
        )
    if found.effective_samples < FEW_SAMPLES or found.masked > MUCH_MASKED:
        return (
            "Much of what the older tokens could teach is lost.",
            f"{_figures(found)} A smaller bound or pool, a smaller learning rate, or another "
            "correction would keep more of it.",
            "warn",
        )
    if found.effective_samples < ENOUGH_SAMPLES:
        return "The policy has moved away from what sampled the older tokens.", _figures(found), ""
    return "Older tokens are still close to the policy.", _figures(found), ""


def _figures(found: Drifted) -> str:
    last = "" if found.is_newest else ", the last that had any"
    return (
        f"Step {found.step}{last}: {number(found.num_tokens)} tokens, KL {number(found.kl, 2)} "
        f"nats, {percent(found.effective_samples)} effective samples, {percent(found.clipped)} of "
        f"the ratios cut, {percent(found.masked)} to a weight of 0."
    )


def unknown_words(num_unknown: float) -> str:
    """What is in neither figure."""
    if not num_unknown:
        return "Every token of the newest step is in one of the two."
    return (
        f"{number(num_unknown)} tokens of the newest step are in neither: their policy version or "
        "log-probability is missing."
    )
