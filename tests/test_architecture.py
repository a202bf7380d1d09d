"""The shape of the code: who may import whom, what a process loads, how long things get."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend import queue
from lagoon import metrics

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lagoon", "backend", "dashboard", "workers", "cli", "benchmarks")
HEAVY = ("torch", "ray", "vllm", "transformers")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "factory"}
LOCAL = re.compile(
    re.escape(str(ROOT))
    + r"|index[-_]url|find[-_]links|trusted[-_]host|pypi\.org|pythonhosted|proxy\.golang|npmjs",
    re.IGNORECASE,
)
"""The path of this checkout, and where packages are fetched from."""
BINARY = {".png"}
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``."""
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {name.partition(".")[0] for name in json.loads(answer.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    ("process", "code"),
    [
        ("core", "import lagoon.config, lagoon.events, lagoon.methods, lagoon.problems"),
        ("backend", "import backend.app"),
        (
            "dashboard",
            "import importlib, pkgutil, dashboard\n"
            "for found in pkgutil.walk_packages(dashboard.__path__, 'dashboard.'):\n"
            "    if found.name != 'dashboard.app':\n"  # a script: it runs when it is imported
            "        importlib.import_module(found.name)",
        ),
        ("Celery worker", "import workers.app, workers.tasks"),
        ("command", "import cli.main"),
        ("starter", "import cli.up"),
    ],
)
def test_no_accelerator_library_is_loaded_by(process, code):
    assert not loaded(code) & set(HEAVY), process


def test_the_driver_leaves_torch_to_its_actors():
    assert not loaded("import workers.driver") & {"torch", "vllm", "transformers"}


def test_the_command_starts_without_what_the_other_parts_need():
    others = {"sqlalchemy", "streamlit", "celery", "redis", "psycopg", "backend", "workers"}
    assert not loaded("import cli.main") & others


def test_import_contracts_hold():
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    answer = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stdout


def test_every_task_the_api_sends_exists_in_the_workers():
    names = [name for key, name in vars(queue).items() if key.isupper() and isinstance(name, str)]
    sent = {name for name in names if name.startswith("workers.")}
    assert sent
    code = "import workers.tasks, workers.app, json; print(json.dumps(list(workers.app.app.tasks)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert {*sent, "workers.observe"} <= set(json.loads(answer.stdout))


@pytest.mark.parametrize(
    "path", list(sources(*PACKAGES, "tests")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_modules_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def test_modules_are_short_on_the_whole():
    lengths = sorted(len(path.read_text().splitlines()) for path in sources(*PACKAGES))
    assert lengths[len(lengths) // 2] < 120


def test_no_module_has_a_name_that_says_nothing():
    named = {path.stem for path in sources(*PACKAGES)}
    assert not named & FORBIDDEN_NAMES


def test_nothing_committed_names_this_machine_or_a_registry():
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in filter(None, tracked)
        if Path(name).suffix not in BINARY and (ROOT / name).is_file()
    }
    assert len(texts) > 300
    found = {name: LOCAL.findall(text) for name, text in texts.items() if LOCAL.search(text)}
    assert set(found) == {"tests/test_architecture.py"}, found  # it names what it looks for


def test_every_metric_of_the_core_has_a_producer():
    names = {name for name, value in vars(metrics).items() if isinstance(value, metrics.Metric)}
    producers = [*sources("workers"), *(p for p in sources("lagoon") if p.stem != "metrics")]
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for path in producers
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    assert names - used == set()


def test_environments_have_the_same_names_in_the_core_and_in_the_workers() -> None:
    core, behavior = (
        {file.stem for file in (ROOT / package / "environments").glob("*.py")}
        for package in ("lagoon", "workers")
    )
    assert core == behavior
