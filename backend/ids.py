"""Short readable ids: a letter for the kind, then base32 without look-alikes."""

import secrets

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 7


def new_id(kind: str) -> str:
    """A fresh id such as ``r7k2m9qd``: ``kind`` and 35 random bits."""
    return kind + "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def attempt_id(run_id: str, number: int) -> str:
    """The id of a run's attempt, which is also the name of its Ray job."""
    return f"{run_id}-a{number}"
