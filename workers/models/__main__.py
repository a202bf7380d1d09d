"""``python -m workers.models NAME --home DIR``: build a model, or find it built.

Progress goes to standard error, a line each; the last line on standard output is the folder.
"""

import argparse
import sys
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from workers.models.folders import ModelError, build


def main() -> int:
    """Returns the exit status: 1, after one line of explanation, when the model cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m workers.models")
    parser.add_argument("name")
    parser.add_argument("--home", type=Path, required=True)
    arguments = parser.parse_args()
    disable_progress_bar()
    try:
        folder = build(arguments.name, arguments.home, _tell)
    except ModelError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
