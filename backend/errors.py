"""Every refusal and every failure as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import http
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg import errors as postgres
from sqlalchemy.exc import DataError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from lagoon.problems import FieldProblem

MEDIA_TYPE = "application/problem+json"
MAX_FIELD_PROBLEMS = 20

logger = logging.getLogger(__name__)


class Problem(HTTPException):
    """A refusal with its reason in words.

    ``slug`` names the kind of problem for programs, ``detail`` tells people what is wrong and what
    to do; ``members`` are further members of the answer.
    """

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.slug = slug
        self.errors = errors
        self.members = members


class NotFound(Problem):
    """There is no such thing, or it is not for this viewer: the answer does not say which."""

    def __init__(self, what: str, id: str) -> None:
        super().__init__(404, "not-found", f"There is no {what} {id!r} that you can see.")


class NoCredentials(Problem):
    """The request is not signed in."""

    def __init__(self, detail: str = "Sign in, or send a valid token.") -> None:
        super().__init__(401, "not-signed-in", detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(Problem):
    """The credential is valid and does not reach this far."""

    def __init__(self, detail: str) -> None:
        super().__init__(403, "forbidden", detail)


class Invalid(Problem):
    """Something in the request is wrong; ``errors`` says which fields."""

    def __init__(self, errors: Sequence[FieldProblem], slug: str = "invalid-request") -> None:
        shown = list(errors)[:MAX_FIELD_PROBLEMS]
        detail = "; ".join(f"{', '.join(each.fields)}: {each.message}" for each in shown[:3])
        if len(errors) > 3:
            detail += f"; and {len(errors) - 3} more"
        super().__init__(422, slug, detail, errors=shown)


class ProblemResponse(JSONResponse):
    """A problem as JSON in ASCII: a refused lone surrogate must not break its own refusal."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content).encode()


def validation_problems(errors: Sequence[Any]) -> list[FieldProblem]:
    """Pydantic's errors about a request, without the part of the request they were found in."""
    problems = []
    for error in errors:
        location = [str(part) for part in error["loc"]]
        if location[:1] in (["body"], ["query"], ["path"], ["header"]):
            location = location[1:]
        if error["type"] == "json_invalid":
            location = []
        problems.append(FieldProblem((".".join(location) or "body",), error["msg"]))
    return problems


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(DataError, _unstorable)
    app.add_exception_handler(IntegrityError, _changed_meanwhile)
    app.add_exception_handler(OperationalError, _database_away)
    app.add_exception_handler(PoolTimeout, _database_away)


def problem_response(
    request: Request,
    status: int,
    slug: str,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """The answer that describes one problem."""
    content: dict[str, Any] = {
        "type": f"urn:lagoon:problem:{slug}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "request_id": getattr(request.state, "request_id", None),
        **(members or {}),
    }
    if errors:
        content["errors"] = [asdict(error) for error in errors]
    return ProblemResponse(content, status, dict(headers or {}))


async def _refused(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, Problem):
        return problem_response(
            request,
            error.status_code,
            error.slug,
            error.detail,
            errors=error.errors,
            headers=error.headers,
            members=error.members,
        )
    assert isinstance(error, HTTPException)
    slug = http.HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    details = {
        404: f"There is nothing at {request.url.path}.",
        405: f"{request.url.path} does not answer {request.method}.",
    }
    detail = details.get(error.status_code, str(error.detail))
    return problem_response(request, error.status_code, slug, detail, headers=error.headers)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return await _refused(request, Invalid(validation_problems(error.errors())))


async def _unstorable(request: Request, error: Exception) -> JSONResponse:
    logger.info("request %s holds a value that cannot be stored: %s", _id(request), error)
    return problem_response(
        request,
        422,
        "unstorable-value",
        "A value in this request cannot be stored: a number beyond 64 bits, a NUL character, or a "
        "name that is too long. "
        "Nothing of the request was stored.",
    )


async def _changed_meanwhile(request: Request, error: Exception) -> JSONResponse:
    logger.info("request %s met a change made meanwhile: %s", _id(request), error)
    return problem_response(
        request,
        409,
        "changed-meanwhile",
        "Something that this request builds on was changed or deleted meanwhile. Nothing of the "
        "request was stored; look again and repeat it.",
    )


async def _database_away(request: Request, error: Exception) -> JSONResponse:
    if isinstance(getattr(error, "orig", None), postgres.ProgramLimitExceeded):
        return await _unstorable(request, error)
    logger.warning("request %s: the database did not answer: %s", _id(request), type(error))
    return problem_response(
        request,
        503,
        "database-unreachable",
        "The database does not answer. Nothing of this request was stored; try again shortly.",
        headers={"Retry-After": "2"},
    )


def failed(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that met a fault of ours: the cause goes to the log, not out."""
    logger.error("request %s failed", _id(request), exc_info=error)
    return problem_response(
        request,
        500,
        "internal-error",
        "Something in the API failed. Nothing of this request was stored; the API's log has the "
        f"cause under request {_id(request)}.",
    )


def _id(request: Request) -> str:
    return str(getattr(request.state, "request_id", "-"))
