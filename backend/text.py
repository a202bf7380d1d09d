"""Text from outside, made fit for storage: Postgres text holds every character but NUL."""

import math
import re
import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, Field

NUL_PICTURE = "\u2400"
MAX_DEPTH = 50
MAX_SENTENCE = 300
MAX_EXCERPT = 100_000
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


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


def first_line(text: str) -> str:
    """The first line with something on it, cut to a sentence's length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= MAX_SENTENCE else line[: MAX_SENTENCE - 1] + "…"


def excerpt(text: str) -> str:
    """``text`` fit for storage: of a very long one its first line, which says what it is, and the
    end, where tracebacks have their cause."""
    if len(text) > MAX_EXCERPT:
        head = f"{first_line(text)}\n…\n"
        text = head + text[len(head) - MAX_EXCERPT :]
    return without_nul(text)


def unstorable(value: Any) -> str | None:
    """Why a JSON value cannot be stored as it is, or None: NUL, NaN, infinities, endless depth."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} levels deep"
        if any(isinstance(each, str) and UNSTORABLE.search(each) for each in level):
            return "a text contains a NUL character or half a surrogate pair"
        if any(isinstance(each, float) and not math.isfinite(each) for each in level):
            return "a number is NaN or infinite"
        level = [inner for each in level for inner in _inside(each)]
    return None


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, list) else []
