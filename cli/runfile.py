"""A run's configuration in a file, YAML, of which JSON is a part; and where its output goes."""

import tempfile
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


def prepare_output(output: Path) -> None:
    """Make the folder for a run.

    Raises ``Refusal`` when it cannot be written, and when it holds a run: a second one would be
    mixed into it.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
        is_used = (output / "events.jsonl").exists()
    except OSError as error:
        raise Refusal(
            f"The output folder {output} cannot be written ({error.strerror}). Nothing was "
            "started: choose another folder with --output DIR."
        ) from None
    if is_used:
        raise Refusal(
            f"{output} holds the events of another run. Nothing was changed: choose another "
            "folder with --output DIR."
        )


def new_output(file: Path, now: datetime) -> Path:
    """The folder for a run of ``file`` started now, below ``runs`` in the current folder."""
    return Path("runs") / f"{file.stem}-{now:%Y%m%d-%H%M%S}"
