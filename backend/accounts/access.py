"""Who is asking: the dependencies that turn a credential into a principal.

Every endpoint that is not public depends on one of these. Permission on an object is checked where
the object is loaded (``runs/access.py``, ``experiments/repository.py``), so that no route can
forget.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.context import Context
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import Forbidden, NoCredentials, NotFound
from backend.models import ApiKey, Attempt, SignIn, User
from backend.settings import Settings
from backend.tokens import Token, parse

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
USED_RESOLUTION = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a credential stands for."""

    id: str
    username: str
    role: Literal["admin", "member", "service", "attempt"]
    sign_in_id: str | None = None
    """The session, when the credential is one."""

    @property
    def is_admin(self) -> bool:
        """True when everything is visible to the principal."""
        return self.role == "admin"


async def authenticated(
    request: Request, context: ContextOf, session: SessionOf, now: Now
) -> Principal:
    """Whoever sent the request. Raises a 401 problem without a valid credential."""
    token = _token(request, context.settings)
    if token is None:
        raise NoCredentials
    principal = await _bearer(session, token, context, now)
    if principal is None:
        raise NoCredentials("This token is unknown, revoked, replaced or expired; sign in again.")
    return principal


Caller = Annotated[Principal, Depends(authenticated)]
"""Anyone with a valid credential."""


def not_a_driver(principal: Caller) -> Principal:
    """The caller, unless it is a run's driver. Raises a 403 problem then."""
    if principal.role == "attempt":
        raise Forbidden(
            "This credential belongs to a run's driver and reaches nothing but its own attempt. "
            "Sign in, or send an API key."
        )
    return principal


AccountHolder = Annotated[Principal, Depends(not_a_driver)]
"""A person, or the workers: whoever has an account or stands for the platform."""


def person(principal: AccountHolder) -> Principal:
    """The caller, when it is a person. Raises a 403 problem otherwise."""
    if principal.role not in ("admin", "member"):
        raise Forbidden(
            "This credential belongs to the workers and does not reach this. Sign in, or send an "
            "API key."
        )
    return principal


def _admin(principal: Caller) -> Principal:
    if principal.role != "admin":
        raise Forbidden("Only an admin may do this.")
    return principal


def _service(principal: Caller) -> Principal:
    if principal.role != "service":
        raise Forbidden("Only the workers' service token reaches this.")
    return principal


Person = Annotated[Principal, Depends(person)]
"""A signed-in person, or their API key."""
Admin = Annotated[Principal, Depends(_admin)]
Service = Annotated[Principal, Depends(_service)]
"""The workers."""


async def _own_attempt(attempt_id: str, principal: Caller, session: SessionOf) -> Attempt:
    if principal.role != "attempt":
        raise Forbidden("Only the attempt's own token reaches this.")
    attempt = await session.get(Attempt, attempt_id) if principal.id == attempt_id else None
    if attempt is None:
        raise NotFound("attempt", attempt_id)
    return attempt


OwnAttempt = Annotated[Attempt, Depends(_own_attempt)]
"""The attempt in the path, for the driver that holds its newest token."""


def _token(request: Request, settings: Settings) -> Token | None:
    """The token in the Authorization header, or else in the cookie."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return parse(value)
    cookie = request.cookies.get(settings.session_cookie)
    if cookie is None:
        return None
    if request.method not in SAFE_METHODS:
        _refuse_foreign_origin(request, settings)
    return parse(cookie)


def _refuse_foreign_origin(request: Request, settings: Settings) -> None:
    """A cookie alone must not let another site's page change anything."""
    origin = request.headers.get("origin")
    ours = (settings.api_url, settings.browser_api_url, settings.dashboard_url)
    allowed = {origin_of(url) for url in ours}
    if origin is not None and origin not in allowed:
        raise Forbidden(f"Requests from pages at {origin} are not accepted.")


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL; empty for what is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


async def _bearer(
    session: AsyncSession, token: Token, context: Context, now: datetime
) -> Principal | None:
    if token.kind == "lgs":
        matches = token.matches(context.service_token_hash)
        return Principal("service", "service", "service") if matches else None
    if token.kind == "lga":
        attempt = await session.get(Attempt, token.id)
        if attempt is None or not token.matches(attempt.token_hash):
            return None
        return Principal(attempt.id, f"attempt {attempt.id}", "attempt")
    if token.kind == "lgn":
        return await _signed_in(session, token, now)
    return await _key_holder(session, token, now) if token.kind == "lgk" else None


async def _signed_in(session: AsyncSession, token: Token, now: datetime) -> Principal | None:
    statement = select(SignIn, User).join(User, User.id == SignIn.user_id)
    row = (await session.execute(statement.where(SignIn.id == token.id))).one_or_none()
    if row is None or not token.matches(row.SignIn.token_hash) or row.SignIn.expires_at <= now:
        return None
    return Principal(row.User.id, row.User.username, row.User.role, row.SignIn.id)


async def _key_holder(session: AsyncSession, token: Token, now: datetime) -> Principal | None:
    statement = select(ApiKey, User).join(User, User.id == ApiKey.user_id)
    row = (await session.execute(statement.where(ApiKey.id == token.id))).one_or_none()
    if row is None or not token.matches(row.ApiKey.token_hash):
        return None
    if row.ApiKey.last_used_at is None or now - row.ApiKey.last_used_at > USED_RESOLUTION:
        await session.execute(update(ApiKey).where(ApiKey.id == token.id).values(last_used_at=now))
        await session.commit()
    return Principal(row.User.id, row.User.username, row.User.role)
