"""Bearer tokens ``<kind>_<id>.<secret>``.

They are looked up by id, compared in constant time and stored as a hash. The secret has 256
random bits, so its plain SHA-256 is enough; passwords are argon2 instead.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal, cast, get_args

TokenKind = Literal["lgn", "lgk", "lga", "lgt", "lgs"]
"""Session, API key, attempt, sign-in ticket, service."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its bearer holds it."""

    kind: TokenKind
    id: str
    secret: str

    def __str__(self) -> str:
        return f"{self.kind}_{self.id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.kind}_{self.id}.***)"

    @property
    def hash(self) -> bytes:
        """What is stored."""
        return hash_secret(self.secret)

    def matches(self, stored: bytes | None) -> bool:
        """True when ``stored`` is this token's hash."""
        return stored is not None and hmac.compare_digest(self.hash, stored)


def mint(kind: TokenKind, id: str) -> Token:
    """A new token for the object with this id."""
    return Token(kind, id, secrets.token_urlsafe(32))


def parse(text: str) -> Token | None:
    """The token in ``text``, or None when it is not one of ours."""
    kind, _, rest = text.strip().partition("_")
    id, _, secret = rest.rpartition(".")
    if kind not in get_args(TokenKind) or not id or not secret:
        return None
    return Token(cast(TokenKind, kind), id, secret)


def hash_secret(secret: str) -> bytes:
    """SHA-256 of a secret."""
    return hashlib.sha256(secret.encode()).digest()
