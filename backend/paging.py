"""Keyset pages: a page says where the next one begins, in an opaque cursor."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from backend.errors import Invalid
from lagoon.problems import FieldProblem

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=200)]


class Page(BaseModel, Generic[T]):
    """Items, and the cursor of the next page when there is one."""

    items: list[T]
    next: str | None = None


def encode_cursor(at: datetime, id: str) -> str:
    """The cursor after the item made at ``at`` with this id."""
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), id]).encode()).decode()


def decode_cursor(cursor: str) -> tuple[datetime, str]:
    """The position a cursor stands for. Raises ``Invalid`` when it is not one of ours."""
    try:
        at, id = json.loads(base64.urlsafe_b64decode(cursor))
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None or not isinstance(id, str) or "\0" in id:
            raise ValueError("not a position")
    except (ValueError, TypeError, binascii.Error) as error:
        problem = FieldProblem(("cursor",), "not a cursor that this API gave out")
        raise Invalid([problem]) from error
    return moment, id
