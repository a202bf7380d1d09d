"""What a run's attempts leave in the home folder: spools, credentials, checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from backend.ids import attempt_id
from cli.home import Home
from cli.output import Refusal


def remove_attempts(home: Home, run: dict[str, Any]) -> int:
    """Remove the folders of all attempts of a run; how many bytes that freed.

    Those of a run that another machine worked on are not here, and nothing is removed.
    Raises ``Refusal`` naming the folder that could not be removed.
    """
    freed = 0
    for attempt in run["attempts"]:
        folder = home.root / "attempts" / attempt_id(run["id"], attempt["number"])
        if not folder.is_dir():
            continue
        num_bytes = _num_bytes(folder)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise Refusal(
                f"The run is deleted, but its folder {folder} could not be removed "
                f"({error.strerror}). Remove it by hand."
            ) from None
        freed += num_bytes
    return freed


def _num_bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)
