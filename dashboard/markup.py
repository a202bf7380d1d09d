"""Small pieces of HTML. Everything that came from outside is escaped here, and only here."""

from collections.abc import Iterable
from html import escape

from dashboard.palette import STATUS_COLORS
from lagoon.status import RunStatus


def pill(status: str) -> str:
    """A run's status as a coloured pill; one that moves has a breathing dot."""
    try:
        known = RunStatus(status)
    except ValueError:
        return f'<span class="lg-pill">{escape(status)}</span>'
    background, text = STATUS_COLORS[known]
    alive = " lg-alive" if known.is_active else ""
    return (
        f'<span class="lg-pill{alive}" style="background:{background};color:{text}">'
        f"<i></i>{known.value}</span>"
    )


def condition(name: str) -> str:
    """A chip that says how an active run is; nothing when all is well."""
    return " " + chip(name.replace("_", " "), "warn") if name else ""


def chip(text: str, kind: str = "", title: str = "") -> str:
    """A small label. ``kind`` is one of good, bad, warn, tool or nothing."""
    hint = f' title="{escape(title)}"' if title else ""
    return f'<span class="lg-chip {kind}"{hint}>{escape(text)}</span>'


def card(label: str, value: str, note: str = "", title: str = "") -> str:
    """One figure with its label and a note below."""
    return (
        f'<div class="lg-card" title="{escape(title)}"><div class="lg-label">{escape(label)}</div>'
        f'<div class="lg-value">{escape(value)}</div><div class="lg-note">{note}</div></div>'
    )


def cards(parts: Iterable[str]) -> str:
    """Cards in a row that wraps."""
    return f'<div class="lg-cards">{"".join(parts)}</div>'


def progress(done: int, total: int, *, is_active: bool) -> str:
    """A bar of ``done`` in ``total`` steps."""
    share = min(1.0, done / total) if total else 0.0
    alive = " lg-flow" if is_active else ""
    return (
        f'<div class="lg-bar" role="progressbar" aria-valuemin="0" aria-valuemax="{total}" '
        f'aria-valuenow="{done}"><div class="lg-fill{alive}" style="width:{100 * share:.2f}%">'
        "</div></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Labelled facts in a wrapping line. Values are HTML already."""
    parts = (f"<span><b>{escape(label)}</b>{value}</span>" for label, value in pairs)
    return f'<div class="lg-facts">{"".join(parts)}</div>'


def notice(title: str, body: str = "", kind: str = "") -> str:
    """A sentence or two in a quiet box. ``kind`` is bad, warn or nothing. Text is escaped."""
    below = f"<div>{escape(body)}</div>" if body else ""
    return f'<div class="lg-notice {kind}"><b>{escape(title)}</b>{below}</div>'


def empty(title: str, body: str) -> str:
    """What a place without content says."""
    return f'<div class="lg-empty"><h3>{escape(title)}</h3><p>{escape(body)}</p></div>'


def heading(text: str, note: str = "") -> str:
    """The title of a section, with an optional explanation."""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f'<div class="lg-heading"><h2>{escape(text)}</h2>{below}</div>'


def table(header: Iterable[str], rows: Iterable[Iterable[str]], numeric: Iterable[int] = ()) -> str:
    """A plain table. Cells are HTML already; ``numeric`` columns are aligned to the right."""
    right = set(numeric)

    def line(cells: Iterable[str], tag: str) -> str:
        parts = (
            f"<{tag}{' class=num' if index in right else ''}>{cell}</{tag}>"
            for index, cell in enumerate(cells)
        )
        return f"<tr>{''.join(parts)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    head = line((escape(cell) for cell in header), "th")
    return (
        f'<div class="lg-scroll"><table class="lg-table"><thead>{head}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
