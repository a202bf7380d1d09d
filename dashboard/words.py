"""Times, durations and numbers as people read them."""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lagoon.points import NON_FINITE


def parse_time(value: str | float | None) -> datetime | None:
    """An API time (ISO 8601 with Z, or Unix seconds) as an aware datetime."""
    if value is None or value == "":
        return None
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(value)


def zone_named(name: str | None) -> ZoneInfo:
    """The viewer's time zone; UTC when the browser names none that is known here."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def clock_time(value: str | float | None, zone: ZoneInfo) -> str:
    """Date and time to the second in the viewer's zone."""
    moment = parse_time(value)
    return moment.astimezone(zone).strftime("%d %b %Y, %H:%M:%S") if moment else "–"


def short_time(value: str | float | None, zone: ZoneInfo) -> str:
    """Day and minute in the viewer's zone."""
    moment = parse_time(value)
    return moment.astimezone(zone).strftime("%d %b, %H:%M") if moment else "–"


def day_time(value: str | float | None, zone: ZoneInfo) -> str:
    """The time of day to the second in the viewer's zone."""
    moment = parse_time(value)
    return moment.astimezone(zone).strftime("%H:%M:%S") if moment else "–"


def utc_time(value: str | float | None) -> str:
    """The same moment in UTC, for tooltips."""
    moment = parse_time(value)
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else ""


def duration(seconds: float) -> str:
    """``41 s``, ``3 min 05 s``, ``2 h 07 min``, ``3 d 04 h``."""
    if seconds < 0 or not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def elapsed(start: str | None, end: str | None, now: datetime) -> str:
    """How long something has taken, up to ``now`` when it has not ended."""
    begun = parse_time(start)
    if begun is None:
        return "–"
    return duration(((parse_time(end) or now) - begun).total_seconds())


def to_float(value: float | str | None) -> float:
    """A number of the API as a float; NaN and the infinities travel as strings, None is NaN."""
    if isinstance(value, str):
        return NON_FINITE.get(value, math.nan)
    return math.nan if value is None else float(value)


def number(value: float | str | None, digits: int = 3) -> str:
    """A number to ``digits`` significant digits; a dash for none, its name for a non-finite one."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value.replace("Infinity", "∞")
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.{digits}g}"


def percent(value: float | str | None) -> str:
    """A share as a percentage with one decimal."""
    share = to_float(value)
    return f"{100 * share:.1f} %" if math.isfinite(share) else "–"


def plural(count: int, noun: str) -> str:
    """``1 run``, ``3 runs``."""
    return f"{count} {noun}" if count == 1 else f"{number(count)} {noun}s"


def slots(cpus: float, gpus: float) -> str:
    """``2 GPUs and 4 CPUs``, without what there is none of."""
    parts = [
        f"{number(count)} {kind}" + ("" if count == 1 else "s")
        for count, kind in ((gpus, "GPU"), (cpus, "CPU"))
        if count
    ]
    return " and ".join(parts) or "nothing"


def title_of(name: str) -> str:
    """A setting's name as a label: ``max_length_tokens`` becomes ``Max length tokens``."""
    acronyms = {"kl": "KL", "kv": "KV", "gib": "GiB", "cpus": "CPUs", "gpus": "GPUs"}
    words = [acronyms.get(word, word) for word in name.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:]
