"""Builds the tiny model in a process of its own, so that x86 machines get the same weights.

::

    asks for a build ──recipe──▶ process with the instruction set pinned ──▶ weights in the folder
           ▲                                        │
           └─────────── a line a message: how far it is, at last the report

Which partial sums a matrix product makes follows from the instructions that the processor has. With
AVX-512 a step of teaching ends in other last bits than with AVX2, and 244 steps make another model
of them: a study's kept cells would count on the machine that they were measured on alone. Torch
reads the instruction set once, when it is loaded, which the asking process may have done long ago.
"""

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

from workers.models.recipes import Recipe

INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""The newest that every processor has which the engine runs on; ARM has its own and ignores them.
Torch's kernels, oneDNN and MKL are told apart."""
PROGRESS, DONE = "progress", "done"


def build_pinned(recipe: Recipe, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """``build_tiny`` in a process of its own. Returns the report.

    The process ends with this one. Raises ``RuntimeError`` with what it printed when it fails.
    """
    report = None
    with TemporaryFile() as complaints:
        with subprocess.Popen(
            [sys.executable, "-m", "workers.models.pinned", str(folder)],
            env=os.environ | INSTRUCTIONS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it has failed already, and said why
                pickle.dump(recipe, process.stdin)
                process.stdin.flush()  # not closed: its end tells the process of this one's
            for line in process.stdout:
                kind, what = json.loads(line)
                if kind == PROGRESS:
                    progress(what)
                else:
                    report = what
        if process.returncode or report is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"building the tiny model failed: {said}")
    return cast(dict[str, Any], report)


def main() -> None:
    """Build the recipe that standard input holds into the folder that is named."""
    recipe = pickle.load(sys.stdin.buffer)  # from the process that started this one
    threading.Thread(target=_end_with_asker, daemon=True).start()
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415  loads torch

    from workers.models.tiny import build_tiny  # noqa: PLC0415  loads torch, as who asks need not

    disable_progress_bar()
    report = build_tiny(recipe, Path(sys.argv[1]), lambda line: _tell(PROGRESS, line))
    _tell(DONE, report)


def _end_with_asker() -> None:
    # Not through the buffer: its lock, held by a thread that waits, would break this one's end.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def _tell(kind: str, what: Any) -> None:
    sys.stdout.write(json.dumps([kind, what]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
