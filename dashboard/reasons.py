"""Why something was dropped, in words. A reason that is not known here is shown as it came."""

REASONS = {
    "rejected_waiting": "waited too long",
    "rejected_drift": "policy drifted from it",
    "stale": "older than the bound",
    "versions_missing": "policy version unknown",
    "no_tokens": "no room for a token",
    "logprobs_missing": "log-probabilities missing",
    "reward_not_finite": "reward not a number",
    "group_lost": "others of its group were lost",
}


def reason_words(reason: str) -> str:
    """The words for a ``reason`` of the ledger."""
    return REASONS.get(reason, reason) or "no reason given"
