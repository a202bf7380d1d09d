"""Signing in and out, tickets, API keys, accounts."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backend.accounts import repository
from backend.accounts.access import (
    AccountHolder,
    Admin,
    Person,
    authenticated,
    not_a_driver,
    origin_of,
    person,
)
from backend.accounts.passwords import Checked, hashed
from backend.accounts.schemas import (
    ApiKeyOut,
    Credentials,
    NewApiKey,
    NewApiKeyOut,
    NewUser,
    SignedIn,
    TicketOut,
    UserOut,
)
from backend.dependencies import ContextOf, Now, SessionOf
from backend.errors import Invalid, NotFound
from backend.models import User
from backend.paging import Page
from backend.settings import Settings
from backend.tokens import Token, parse
from lagoon.problems import FieldProblem

router = APIRouter(tags=["accounts"])


@router.post("/session")
async def sign_in(
    body: Credentials,
    check: Checked,
    response: Response,
    context: ContextOf,
    session: SessionOf,
    now: Now,
) -> SignedIn:
    """Sign in with a password: a cookie for browsers, the same token for everyone else."""
    user = await check(body)
    token = await repository.add_sign_in(session, user.id, now)
    await session.commit()
    _set_cookie(response, token, context.settings)
    return SignedIn(user=_user_out(user), token=str(token))


@router.post("/session/tickets")
async def create_ticket(
    request: Request,
    check: Checked,
    context: ContextOf,
    session: SessionOf,
    now: Now,
    body: Credentials | None = None,
) -> TicketOut:
    """A one-time sign-in ticket, for a password or, without a body, for a bearer token."""
    if body is None:
        user_id = person(not_a_driver(await authenticated(request, context, session, now))).id
    else:
        user_id = (await check(body)).id
    ticket = await repository.add_ticket(session, user_id, now)
    await session.commit()
    return TicketOut(ticket=str(ticket))


@router.get("/signin", status_code=303)
async def use_ticket(
    ticket: str, context: ContextOf, session: SessionOf, now: Now, next: str = ""
) -> RedirectResponse:
    """Exchange a ticket for the cookie, and go on to the dashboard."""
    token = parse(ticket)
    user_id = None
    if token is not None and token.kind == "lgt" and "\0" not in token.id:
        user_id = await repository.use_ticket(session, token, now)
    dashboard = context.settings.dashboard_url
    if user_id is None:
        await session.commit()
        return RedirectResponse(f"{dashboard}?{urlencode({'signin': 'expired'})}", 303)
    sign_in_token = await repository.add_sign_in(session, user_id, now)
    await session.commit()
    is_ours = origin_of(next) == origin_of(dashboard) and "\\" not in next
    response = RedirectResponse(next if is_ours else dashboard, 303)
    _set_cookie(response, sign_in_token, context.settings)
    return response


@router.delete("/session", status_code=204)
async def sign_out(principal: AccountHolder, context: ContextOf, session: SessionOf) -> Response:
    """End the session that the request came with."""
    if principal.sign_in_id is not None:
        await repository.remove_sign_in(session, principal.sign_in_id)
        await session.commit()
    response = Response(status_code=204)
    cookie = context.settings.session_cookie
    response.delete_cookie(cookie, path="/", httponly=True, samesite="lax")
    return response


@router.get("/me")
async def read_me(principal: AccountHolder) -> UserOut:
    """Who the credential stands for."""
    return UserOut.model_validate(principal, from_attributes=True)


@router.get("/api-keys")
async def list_api_keys(owner: Person, session: SessionOf) -> Page[ApiKeyOut]:
    """One's own API keys."""
    keys = await repository.api_keys(session, owner.id)
    return Page(items=[ApiKeyOut.model_validate(key, from_attributes=True) for key in keys])


@router.post("/api-keys", status_code=201)
async def create_api_key(
    body: NewApiKey, owner: Person, session: SessionOf, now: Now
) -> NewApiKeyOut:
    """A new API key. Its token is in this answer and nowhere else."""
    key, token = await repository.add_api_key(session, owner.id, body.name, now)
    await session.commit()
    return NewApiKeyOut(id=key.id, name=key.name, created_at=key.created_at, token=str(token))


@router.delete("/api-keys/{key_id}", status_code=204)
async def delete_api_key(key_id: str, owner: Person, session: SessionOf) -> None:
    """Revoke an API key."""
    if not await repository.remove_api_key(session, owner.id, key_id):
        raise NotFound("API key", key_id)
    await session.commit()


@router.get("/users")
async def list_users(admin: Admin, session: SessionOf) -> Page[UserOut]:
    """All accounts."""
    return Page(items=[_user_out(user) for user in await repository.users(session)])


@router.post("/users", status_code=201)
async def create_user(
    body: NewUser, admin: Admin, context: ContextOf, session: SessionOf, now: Now
) -> UserOut:
    """Make an account."""
    hash = await hashed(context.passwords, body.password.get_secret_value())
    user = await repository.add_user(session, body.username, hash, body.role, now)
    if user is None:
        raise Invalid([FieldProblem(("username",), f"{body.username!r} is taken")])
    await session.commit()
    return _user_out(user)


def _user_out(user: User) -> UserOut:
    return UserOut.model_validate(user, from_attributes=True)


def _set_cookie(response: Response, token: Token, settings: Settings) -> None:
    response.set_cookie(
        settings.session_cookie,
        str(token),
        max_age=repository.SESSION_DAYS * 24 * 3600,
        path="/",
        httponly=True,
        samesite="lax",
        secure=settings.has_secure_cookies,
    )
