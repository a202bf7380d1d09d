"""Text from outside, made fit for storage: Postgres text holds every character but NUL."""

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, Field

NUL_PICTURE = "\u2400"


def _normalized(value: str) -> str:
    text = unicodedata.normalize("NFC", value).strip()
    if not text:
        raise ValueError("must not be empty")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("must be one line without control characters")
    return text


def _storable(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    return value


Name = Annotated[str, Field(max_length=200), AfterValidator(_normalized)]
"""A title or name: any Unicode on one line, NFC-normalized."""

LongText = Annotated[str, Field(max_length=100_000), AfterValidator(_storable)]
"""Text of several lines."""


def without_nul(text: str) -> str:
    """``text`` with NUL shown as ␀: a driver's output is kept, not refused, because of it."""
    return text.replace("\0", NUL_PICTURE)


def has_nul(value: Any) -> bool:
    """True when a string anywhere in a JSON value holds a NUL."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(has_nul(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return any(has_nul(each) for each in value)
    return False
