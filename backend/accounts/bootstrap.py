"""The credentials that a fresh installation makes for itself, each in a file of mode 0600."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sqlalchemy import text

from backend.accounts import repository
from backend.accounts.passwords import hashed
from backend.context import Context
from backend.settings import Settings
from backend.tokens import hash_secret, mint, parse

FIRST_START_LOCK = 4_207_001
ADMIN = "admin"


def service_token_hash(settings: Settings) -> bytes:
    """The hash of the workers' token; the token is made when its file does not exist yet.

    Raises ``ValueError`` when the file holds something else.
    """
    path = settings.service_token_path
    _write_once(path, str(mint("lgs", "service")))
    token = parse(path.read_text())
    if token is None or token.kind != "lgs":
        raise ValueError(f"{path} does not hold a service token (lgs_…); remove it to make one")
    return hash_secret(token.secret)


async def ensure_admin(context: Context) -> None:
    """Make the first account when there is none; one process of several does it."""
    async with context.database.session() as session:
        await session.execute(text("select pg_advisory_xact_lock(:key)"), {"key": FIRST_START_LOCK})
        if await repository.has_users(session):
            return
        password = _admin_password(context.settings)
        hash = await hashed(context.passwords, password)
        await repository.add_user(session, ADMIN, hash, "admin", context.clock())
        await session.commit()


def _admin_password(settings: Settings) -> str:
    if settings.admin_password is not None:
        return settings.admin_password.get_secret_value()
    path = settings.credentials_dir / "admin-password"
    _write_once(path, secrets.token_urlsafe(12))
    return path.read_text().strip()


def _write_once(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, unless it exists."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
