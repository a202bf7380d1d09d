"""Passwords: argon2, off the event loop."""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import repository
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


def _matches(passwords: PasswordHasher, stored: str, password: str) -> bool:
    try:
        return passwords.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
