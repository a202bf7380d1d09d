"""Queries about accounts."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.ids import new_id
from backend.models import ApiKey, SignIn, Ticket, User
from backend.tokens import Token, mint

SESSION_DAYS = 30
TICKET_MINUTES = 10


async def user_named(session: AsyncSession, username: str) -> User | None:
    """The user with this name."""
    return await session.scalar(select(User).where(User.username == username))


async def has_users(session: AsyncSession) -> bool:
    """True once there is an account."""
    return await session.scalar(select(User.id).limit(1)) is not None


async def add_user(
    session: AsyncSession, username: str, password_hash: str, role: str, now: datetime
) -> User | None:
    """A new account; None when the name is taken."""
    values = {
        "id": new_id("u"),
        "username": username,
        "password_hash": password_hash,
        "role": role,
        "created_at": now,
    }
    statement = insert(User).values(values).on_conflict_do_nothing(index_elements=["username"])
    return await session.scalar(statement.returning(User))


async def users(session: AsyncSession) -> list[User]:
    """All accounts, by name."""
    return list(await session.scalars(select(User).order_by(User.username)))


async def add_sign_in(session: AsyncSession, user_id: str, now: datetime) -> Token:
    """A new session; sessions of the user that have expired are swept away."""
    await session.execute(delete(SignIn).where(SignIn.user_id == user_id, SignIn.expires_at <= now))
    token = mint("lgn", new_id("s"))
    expires = now + timedelta(days=SESSION_DAYS)
    session.add(
        SignIn(
            id=token.id, user_id=user_id, token_hash=token.hash, created_at=now, expires_at=expires
        )
    )
    return token


async def remove_sign_in(session: AsyncSession, id: str) -> None:
    """End a session."""
    await session.execute(delete(SignIn).where(SignIn.id == id))


async def add_ticket(session: AsyncSession, user_id: str, now: datetime) -> Token:
    """A ticket that signs the user in once, soon."""
    await session.execute(delete(Ticket).where(Ticket.expires_at <= now))
    token = mint("lgt", new_id("t"))
    expires = now + timedelta(minutes=TICKET_MINUTES)
    session.add(Ticket(id=token.id, user_id=user_id, token_hash=token.hash, expires_at=expires))
    return token


async def use_ticket(session: AsyncSession, token: Token, now: datetime) -> str | None:
    """The id of the user whom the ticket signs in, or None; the ticket is gone afterwards."""
    statement = (
        delete(Ticket)
        .where(Ticket.id == token.id, Ticket.token_hash == token.hash)
        .returning(Ticket.user_id, Ticket.expires_at)
    )
    used = (await session.execute(statement)).one_or_none()
    return used.user_id if used and used.expires_at > now else None


async def api_keys(session: AsyncSession, user_id: str) -> list[ApiKey]:
    """The user's API keys, newest first."""
    statement = select(ApiKey).where(ApiKey.user_id == user_id)
    return list(await session.scalars(statement.order_by(ApiKey.created_at.desc(), ApiKey.id)))


async def add_api_key(
    session: AsyncSession, user_id: str, name: str, now: datetime
) -> tuple[ApiKey, Token]:
    """A new API key, with the token that is shown once."""
    token = mint("lgk", new_id("k"))
    key = ApiKey(
        id=token.id,
        user_id=user_id,
        name=name,
        token_hash=token.hash,
        created_at=now,
        last_used_at=None,
    )
    session.add(key)
    return key, token


async def remove_api_key(session: AsyncSession, user_id: str, id: str) -> bool:
    """True when the user had such a key; it is gone."""
    statement = delete(ApiKey).where(ApiKey.id == id, ApiKey.user_id == user_id)
    return await session.scalar(statement.returning(ApiKey.id)) is not None
