"""The scripts of .ci with stand-ins for the commands that would change the machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or "bash"
DIRNAME = shutil.which("dirname") or "dirname"


def run(folder: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """``.ci/run`` where nothing but these commands is on the PATH, each a line of shell."""
    (folder / "dirname").symlink_to(DIRNAME)
    for name, line in commands.items():
        (folder / name).write_text(f"#!{BASH}\n{line}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [BASH, str(ROOT / ".ci" / "run")],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
    )


BARE = {"make": "echo make $1", "python3": "exit 1", "env": "exit 1"}


def test_what_is_missing_is_installed_with_sudo_by_a_user_who_is_not_root(tmp_path):
    answer = run(tmp_path, **BARE, id="echo 1000", sudo='echo "sudo $*"')
    install = "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv"
    assert answer.stdout.splitlines() == [
        "sudo apt-get update -qq",
        install,
        "make check",
        "make test",
    ]


def test_what_is_missing_is_named_where_nobody_may_install_it(tmp_path):
    answer = run(tmp_path, **BARE, id="echo 1000")
    assert answer.returncode == 1
    assert answer.stderr == "Missing: python3-venv. Install them as root.\n"


@pytest.mark.parametrize("path", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_every_script_parses(path):
    subprocess.run([BASH, "-n", str(path)], check=True)


@pytest.mark.parametrize(("name", "is_needed"), [("instruct", True), ("quickstart", False)])
def test_a_benchmark_gets_reasoning_gym_if_it_plays_it(name, is_needed):
    """What ``make`` would do in a fresh clone: -n prints it, -B takes nothing for done."""
    told = subprocess.run(
        ["make", "-nB", "bench", f"NAME={name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert f"-m benchmarks.{name}" in told.stdout
    assert ("requirements/reasoning-gym.txt" in told.stdout) is is_needed
