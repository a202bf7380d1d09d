import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.engine_process import PRELOADED

SCRIPT = """
import os, sys
from multiprocessing import forkserver
from pathlib import Path
from workers import engine_process

def child(queue):
    queue.put((os.environ["SAID_LATER"], "LD_PRELOAD" in os.environ, "torch" in sys.modules))

if __name__ == "__main__":
    engine_process.PRELOADED = ("torch",)
    engine_process.preload(Path(sys.argv[1]))
    os.environ["SAID_LATER"] = "yes"
    context = engine_process._Forks()
    queue = context.Queue()
    process = context.Process(target=child, name="engine", kwargs={"queue": queue})
    process.start()
    print(*queue.get(timeout=60), flush=True)
    process.join()
    os.kill(os.getpid(), 9)  # as Ray ends a generator
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets, whose paths may only be short."""
    with tempfile.TemporaryDirectory(prefix="lagoon-") as made:
        yield Path(made)


def run_script(folder: Path, tmp_path: Path) -> str:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return done.stdout.strip()


def test_a_forked_process_has_the_imports_and_the_environment_of_its_parent(
    folder: Path, tmp_path: Path
) -> None:
    assert run_script(folder, tmp_path) == "yes True True"


def test_the_sockets_of_a_killed_generator_are_removed_by_the_next(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "engine-of-unknown-origin").mkdir()
    run_script(folder, tmp_path)
    (left,) = folder.iterdir()
    run_script(folder, tmp_path)
    (other,) = folder.iterdir()
    assert left != other


def test_what_is_preloaded_exists() -> None:
    for module in PRELOADED:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
