from typing import get_args

from dashboard.reasons import REASONS, reason_words
from lagoon.pace import RejectionReason
from lagoon.screening import DropReason


def test_every_reason_of_the_ledger_has_words() -> None:
    reasons = set(get_args(DropReason))
    assert set(get_args(RejectionReason)) <= reasons
    assert set(REASONS) == reasons


def test_a_reason_that_is_not_known_is_shown_as_it_came() -> None:
    assert reason_words("from_a_newer_driver") == "from_a_newer_driver"
    assert reason_words("") == "no reason given"
