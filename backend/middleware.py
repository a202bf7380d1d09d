"""What every request passes through: an id, a size limit, and headers that keep answers private."""

from __future__ import annotations

import secrets

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import Problem, failed, problem_response

MAX_BODY_BYTES = 8 * 1024 * 1024


class RequestFrame:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with an id and a limited body; answer for it when it fails."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id

        has_answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_answered
            if message["type"] == "http.response.start":
                has_answered = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
            await send(message)

        request = Request(scope)
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            error = body_too_large()
            response = problem_response(
                request, error.status_code, error.slug, error.detail, members=error.members
            )
            await response(scope, receive, send_with_headers)
            return
        try:
            await self.app(scope, _limited(receive), send_with_headers)
        except Exception as error:  # whatever it is, the client gets a problem
            if has_answered:
                raise
            await failed(request, error)(scope, receive, send_with_headers)


def body_too_large() -> Problem:
    """413, with the limit."""
    return Problem(
        413,
        "body-too-large",
        f"A request may have {MAX_BODY_BYTES} bytes; nothing of this one was stored. Send less at "
        "a time.",
        limit=MAX_BODY_BYTES,
    )


def _limited(receive: Receive) -> Receive:
    """``receive``, refusing a body that grows past the limit without having announced it."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise body_too_large()
        return message

    return limited
