"""A run's configuration in a file, YAML, of which JSON is a part; and where its output goes."""

from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from cli.output import Refusal


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in ``path``. Raises ``Refusal`` when there is none."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"{path} cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise Refusal(f"{path} is not valid YAML: {problem}") from None
    if not isinstance(content, dict):
        raise Refusal(f"{path} must hold a run configuration: a mapping with method, environment …")
    return content


def refuse_used(output: Path) -> None:
    """Raise ``Refusal`` when ``output`` holds a run: a second one would be mixed into it."""
    if (output / "events.jsonl").exists():
        raise Refusal(
            f"{output} holds the events of another run. Nothing was changed: choose another "
            "folder with --output DIR."
        )


def new_output(file: Path, now: datetime) -> Path:
    """The folder for a run of ``file`` started now, below ``runs`` in the current folder."""
    return Path("runs") / f"{file.stem}-{now:%Y%m%d-%H%M%S}"
