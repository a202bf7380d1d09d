"""Is the process alive, can the platform work, which version is it. Public, without secrets.

Ray and the workers are judged by the last observation: its age says whether workers run, its
content whether Ray answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlalchemy import text

from backend.context import Context
from backend.dependencies import ContextOf, Now
from backend.models import ClusterObservation
from lagoon import __version__

TIMEOUT_SECONDS = 4
FRESH = timedelta(seconds=30)

logger = logging.getLogger(__name__)
router = APIRouter(tags=["health"])


class Check(BaseModel):
    """The state of one part of the platform."""

    ok: bool
    detail: str


class Readiness(BaseModel):
    """Whether the platform can work, by part."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, Check]


@router.get("/livez")
async def read_liveness() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/version")
async def read_version() -> dict[str, str]:
    """Which Lagoon this is."""
    return {"version": __version__, "api": "v1"}


@router.get("/readyz", responses={503: {"model": Readiness}})
async def read_readiness(response: Response, context: ContextOf, now: Now) -> Readiness:
    """Postgres, the broker, the workers and Ray: 503 when one of them is missing."""
    postgres, broker, (worker, ray) = await asyncio.gather(
        _answers(_ask_postgres(context), "Postgres"),
        _answers(asyncio.to_thread(context.queue.ping), "The broker"),
        _observed(context, now),
    )
    checks = {"postgres": postgres, "broker": broker, "ray": ray, "worker": worker}
    is_ready = all(check.ok for check in checks.values())
    response.status_code = 200 if is_ready else 503
    return Readiness(status="ok" if is_ready else "unavailable", checks=checks)


async def _answers(question: Awaitable[None], who: str) -> Check:
    try:
        await asyncio.wait_for(question, TIMEOUT_SECONDS)
    except Exception as error:  # whatever its client raises, the part does not answer
        logger.info("%s is not ready: %s", who, error)
        return Check(ok=False, detail=f"{who} does not answer.")
    return Check(ok=True, detail=f"{who} answers.")


async def _ask_postgres(context: Context) -> None:
    async with context.database.session() as session:
        await session.execute(text("select 1"))


async def _last_observation(context: Context) -> ClusterObservation | None:
    async with context.database.session() as session:
        return await session.get(ClusterObservation, 1)


async def _observed(context: Context, now: datetime) -> tuple[Check, Check]:
    """The workers' check and Ray's."""
    try:
        seen = await asyncio.wait_for(_last_observation(context), TIMEOUT_SECONDS)
    except Exception as error:
        logger.info("the last observation cannot be read: %s", error)
        unknown = Check(ok=False, detail="Not known: Postgres does not answer.")
        return unknown, unknown
    if seen is None or now - seen.at > FRESH:
        last = f" since {seen.at:%Y-%m-%d %H:%M:%S} UTC" if seen else " yet"
        silent = Check(ok=False, detail=f"The workers have not reported{last}.")
        return silent, Check(ok=False, detail="Not known: the workers do not report.")
    worker = Check(ok=True, detail="The workers report.")
    if seen.ray != "ok":
        return worker, Check(ok=False, detail="The workers cannot reach Ray.")
    return worker, Check(ok=True, detail="Ray answers the workers.")
