import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from cli.processes import wait_until
from workers.engine_process import PRELOADED

SCRIPT = """
import os, signal, sys
from pathlib import Path
from workers import engine_process

def child(queue):
    queue.put((os.environ["SAID_LATER"], "LD_PRELOAD" in os.environ, "torch" in sys.modules))

def loading(queue):
    queue.put((os.getpid(),))
    queue.close()
    queue.join_thread()
    signal.pause()

if __name__ == "__main__":
    target, preloaded = {"child": child, "loading": loading}[sys.argv[2]], sys.argv[3]
    engine_process.PRELOADED = (preloaded,)
    engine_process.preload(Path(sys.argv[1]))
    os.environ["SAID_LATER"] = "yes"
    context = engine_process._Forks()
    queue = context.Queue()
    process = context.Process(target=target, name="engine", kwargs={"queue": queue})
    process.start()
    print(*queue.get(timeout=60), flush=True)
    if target is child:
        process.join()
    os.kill(os.getpid(), 9)  # as Ray ends a generator
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets, whose paths may only be short."""
    with tempfile.TemporaryDirectory(prefix="lagoon-") as made:
        yield Path(made)


def run_script(
    folder: Path, tmp_path: Path, *, target: str = "child", preloaded: str = "torch"
) -> str:
    """What a generator with a fork server said before it was killed."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(folder), target, preloaded],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
    )
    return (done.stdout or done.stderr).strip()


def test_a_forked_process_has_the_imports_and_the_environment_of_its_parent(
    folder: Path, tmp_path: Path
) -> None:
    assert run_script(folder, tmp_path) == "yes True True"


def test_an_engine_that_is_loading_ends_with_its_generator(folder: Path, tmp_path: Path) -> None:
    engine = int(run_script(folder, tmp_path, target="loading", preloaded="json"))
    assert wait_until(lambda: not psutil.pid_exists(engine), 30)


def test_the_sockets_of_a_killed_generator_are_removed_by_the_next(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "engine-of-unknown-origin").mkdir()
    run_script(folder, tmp_path)
    (left,) = folder.iterdir()
    run_script(folder, tmp_path)
    (other,) = folder.iterdir()
    assert left != other


@pytest.mark.parametrize("module", PRELOADED)
def test_what_is_preloaded_exists(module: str) -> None:
    package, *path = module.split(".")
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    (root,) = found.submodule_search_locations
    assert Path(root, *path).with_suffix(".py").is_file()


def test_the_module_that_is_left_out_gives_vllm_all_that_it_takes_from_it() -> None:
    found = find_spec("vllm")
    assert found is not None
    assert found.submodule_search_locations
    (root,) = found.submodule_search_locations
    taken = {
        name.strip()
        for file in Path(root).rglob("*.py")
        for names in re.findall(r"from vllm\.env_override import \(?([\w, ]+)", file.read_text())
        for name in names.split(",")
    }
    code = (
        "import sys, workers.lean_imports; "
        "print(*[n for n, v in vars(sys.modules['vllm.env_override']).items() if callable(v)])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == taken
    assert taken


def test_a_server_whose_imports_failed_is_said_in_words(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken_import.py").write_text("1 / 0\n")
    said = run_script(folder, tmp_path, preloaded="broken_import")
    assert "ForkFailed: the engine's process could not be started" in said
