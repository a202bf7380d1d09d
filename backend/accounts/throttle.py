"""How often passwords may be tried: per account, and per address that the tries come from.

Each has an allowance that returns with time. It is kept as one moment, the one at which it will be
whole again (the generic cell rate algorithm)::

    try        whole_at = max(whole_at, now) + interval, refused if that lies more than
               burst * interval ahead
    success    the account's allowance is whole at once; the address gets back this one try

Tries are counted before the password is looked at and in the database, so neither parallel tries
nor several API processes get more. Whoever fills an account's allowance keeps its owner from
signing in with the password for a while; sessions and API keys are not affected.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.errors import Problem
from backend.models import SignInAllowance


@dataclass(frozen=True, slots=True)
class Allowance:
    """So many tries at once, and one more after every interval."""

    burst: int
    interval: timedelta

    @property
    def tolerance(self) -> timedelta:
        """How far ahead the allowance's recovery may lie for one more try to be granted."""
        return self.interval * (self.burst - 1)


PER_ACCOUNT = Allowance(10, timedelta(seconds=30))
PER_ADDRESS = Allowance(50, timedelta(seconds=3))
"""Larger: the dashboard signs all its users in from one address."""


class TooManyTries(Problem):
    """429, with the seconds after which a try is granted again."""

    def __init__(self, wait: timedelta) -> None:
        seconds = max(1, math.ceil(wait.total_seconds()))
        super().__init__(
            429,
            "too-many-sign-ins",
            f"Too many attempts to sign in. Try again in {seconds} s; sessions and API keys go on "
            "working.",
            headers={"Retry-After": str(seconds)},
        )


async def take(session: AsyncSession, username: str, address: str, now: datetime) -> None:
    """Count one try, and commit. Raises ``TooManyTries``; a refused try is not counted."""
    # Always in this order: two tries that share both rows cannot wait for each other.
    for subject, allowance in (
        (_account(username), PER_ACCOUNT),
        (_address(address), PER_ADDRESS),
    ):
        wait = await _take_one(session, subject, allowance, now)
        if wait is not None:
            await session.rollback()
            raise TooManyTries(wait)
    await session.commit()


async def forgive(session: AsyncSession, username: str, address: str) -> None:
    """The try that was counted last was right. The caller commits.

    The address is not cleared: with an account of one's own, other accounts could be tried for
    ever from it.
    """
    await session.execute(
        delete(SignInAllowance).where(SignInAllowance.subject == _account(username))
    )
    await session.execute(
        update(SignInAllowance)
        .where(SignInAllowance.subject == _address(address))
        .values(whole_at=SignInAllowance.whole_at - PER_ADDRESS.interval)
    )


async def sweep(session: AsyncSession, now: datetime) -> None:
    """Forget the allowances that are whole again; a row that is in use is left for later."""
    whole = select(SignInAllowance.subject).where(SignInAllowance.whole_at <= now)
    unused = whole.with_for_update(skip_locked=True)
    await session.execute(delete(SignInAllowance).where(SignInAllowance.subject.in_(unused)))


async def _take_one(
    session: AsyncSession, subject: str, allowance: Allowance, now: datetime
) -> timedelta | None:
    """Take one try from an allowance; how long to wait when there is none left."""
    known = SignInAllowance.whole_at
    statement = insert(SignInAllowance).values(subject=subject, whole_at=now + allowance.interval)
    granted = statement.on_conflict_do_update(
        index_elements=["subject"],
        set_={"whole_at": func.greatest(known, now) + allowance.interval},
        where=known <= now + allowance.tolerance,
    ).returning(known)
    if await session.scalar(granted) is not None:
        return None
    # The refused upsert has locked the row: it is there, and as it was found.
    whole_at = await session.scalar(select(known).where(SignInAllowance.subject == subject))
    assert whole_at is not None
    return whole_at - allowance.tolerance - now


def _account(username: str) -> str:
    """Hashed: passwords are sometimes typed into the wrong field."""
    return "account " + sha256(username.encode(errors="replace")).hexdigest()


def _address(address: str) -> str:
    """One network of IPv6, whose holder has 2^64 addresses, counts as one address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return f"address {parsed.ipv4_mapped}"
        return f"address {ipaddress.ip_network((int(parsed), 64), strict=False)}"
    return f"address {parsed}"
