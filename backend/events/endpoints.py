"""Events over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError

from backend.accounts.access import OwnAttempt, Service
from backend.dependencies import Now, SessionOf
from backend.errors import Invalid, validation_problems
from backend.events.ingest import ingest
from backend.events.leftovers import ingest_left
from backend.events.schemas import Accepted, Stored
from lagoon.events import EventBatch

router = APIRouter(tags=["events"])

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EventBatch.model_json_schema()}},
    }
}


@router.post("/attempts/{attempt_id}/events", status_code=202, openapi_extra=BODY)
async def post_events(
    request: Request, attempt: OwnAttempt, session: SessionOf, now: Now
) -> Accepted:
    """Store a batch of events, exactly once by its writer and number.

    A batch that is stored already changes nothing; one that skips a number is refused (409, with
    the number expected); a malformed one is refused whole.
    """
    batch = _parsed(await request.body())
    accepted = await ingest(session, attempt.id, attempt.fencing_token, batch, now)
    await session.commit()
    return accepted


@router.post("/internal/attempts/{attempt_id}/events", status_code=202, openapi_extra=BODY)
async def post_left_events(
    request: Request, attempt_id: str, service: Service, session: SessionOf, now: Now
) -> Stored:
    """Store a batch that the driver of an attempt left in its spool when it died.

    Numbered and refused like a driver's own. Refused as well while the driver may be alive.
    """
    last = await ingest_left(session, attempt_id, _parsed(await request.body()), now)
    await session.commit()
    return Stored(accepted_number=last)


def _parsed(body: bytes) -> EventBatch:
    try:
        return EventBatch.model_validate_json(body)
    except ValidationError as error:
        problems = validation_problems(error.errors(include_url=False, include_context=False))
        raise Invalid(problems, "invalid-events") from error
