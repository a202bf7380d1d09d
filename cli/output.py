"""What the command says: sentences, tables and JSON, and the one way it refuses."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer


class Refusal(Exception):
    """Something that the command cannot do, in one or a few sentences for the user.

    ``main`` prints it without a traceback and ends with ``exit_code``.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def say(text: str = "") -> None:
    """A line on standard output, shown at once."""
    typer.echo(text)


def tell(text: str) -> None:
    """A line on standard output, if anybody still reads it: a closed terminal stops nothing."""
    with contextlib.suppress(OSError):
        typer.echo(text)


def warn(text: str) -> None:
    """A line on standard error."""
    typer.echo(text, err=True)


def say_json(value: Any) -> None:
    """One JSON document on standard output; floats that are not finite are already strings."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[tuple[str, str]]) -> str:
    """Rows as aligned text. ``columns`` are (key, heading) pairs; a missing value is a dash."""
    cells = [[heading for _, heading in columns]]
    cells += [[_cell(row.get(key)) for key, _ in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    return " ".join(str(value).split())
