"""Passwords: argon2, off the event loop, and not as often as somebody likes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import repository, throttle
from backend.accounts.schemas import Credentials
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import Problem
from backend.models import User


async def hashed(passwords: PasswordHasher, password: str) -> str:
    """What is stored of a password."""
    return await asyncio.to_thread(passwords.hash, password)


async def verified_user(
    session: AsyncSession, passwords: PasswordHasher, username: str, password: str
) -> User:
    """The user with this name and password.

    An unknown name takes as long as a wrong password. Raises a 401 problem for both.
    """
    user = await repository.user_named(session, username) if "\0" not in username else None
    if user is None:
        await hashed(passwords, password)
    elif await asyncio.to_thread(_matches, passwords, user.password_hash, password):
        return user
    raise Problem(401, "wrong-password", "The user name or the password is wrong.")


class PasswordCheck:
    """Checks a password in a request, unless too many were tried."""

    def __init__(self, request: Request, context: ContextOf, session: SessionOf, now: Now) -> None:
        self._address = request.client.host if request.client else "local socket"
        self._context, self._session, self._now = context, session, now

    async def __call__(self, body: Credentials) -> User:
        """The user. Raises a 401 or a 429 problem; the caller commits."""
        await throttle.take(self._session, body.username, self._address, self._now)
        password = body.password.get_secret_value()
        passwords = self._context.passwords
        user = await verified_user(self._session, passwords, body.username, password)
        await throttle.forgive(self._session, body.username, self._address)
        return user


Checked = Annotated[PasswordCheck, Depends()]
"""What an endpoint calls with the credentials in its body."""


def _matches(passwords: PasswordHasher, stored: str, password: str) -> bool:
    try:
        return passwords.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
