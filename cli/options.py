"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Home folder; else LAGOON_HOME, else ~/.lagoon. With it, LAGOON_API_URL and "
        "LAGOON_API_KEY are not used.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
RunArgument = Annotated[str, typer.Argument(help="The run's id.")]
