"""The fault suite's second part: faults that are made on purpose, each a case with its own check.

::

    case ─▶ run on a real platform ─▶ fault ─▶ what the platform says, and when ─▶ what is wrong
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.fault_stage import VERDICT_SECONDS, Stage
from benchmarks.frame import Options, Report, progress
from benchmarks.stack import running, temporary_home

PLATFORM = "benchmarks.fault_platform"
SEED = 2026
NUM_QUICK = 1
NOTES = f"""A whole platform in a home of its own, with the tiny model; one case after the other,
with random moments of seed {SEED}. The clock that steps is the API's own, which the suite sets; the
full disk is a small tmpfs in the place of the run's checkpoints. **Seconds**: from the fault until
the page said what is true; of a stop, from the request until the last process of the run was gone.
Of every run, points and prompts are counted as after the kills, and processes are looked for. A
process that is held is stopped by SIGSTOP and never let go: only a kill ends it."""


@dataclass(slots=True)
class Found:
    """What a case has shown."""

    said: str
    """What became of the run, in the platform's words where there are any."""
    seconds: float | None = None
    """Until that was so; None where nothing was to be waited for."""
    wrong: list[str] = field(default_factory=list)
    """What should have been otherwise."""
    not_run: str = ""
    """Why the machine does not let the case be run."""

    def expect(self, holds: object, otherwise: str) -> None:
        """Note ``otherwise`` as wrong unless ``holds``."""
        if not holds:
            self.wrong.append(otherwise)

    def expect_soon(self, seconds: float | None, what: str, limit: float = VERDICT_SECONDS) -> None:
        """Keep the time that it took; a target of it is ``limit``."""
        self.seconds = seconds
        self.expect(seconds is not None and seconds < limit, f"{what}: not within {limit:g} s")


@dataclass(frozen=True, slots=True)
class Case:
    """A fault and its check."""

    name: str
    play: Callable[[Stage, random.Random], Found]


def measure_all(cases: Sequence[Case]) -> Callable[[Options], Report]:
    """A part of the suite: all ``cases`` on one platform, or the first of them for a quick look."""

    def measure(options: Options) -> Report:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it started ends then, too
        wanted = cases[:NUM_QUICK] if options.quick else cases
        order, found = random.Random(SEED), []
        with temporary_home() as home, running(home, PLATFORM) as api:
            stage = Stage(home, api)
            for case in wanted:
                progress(f"{case.name} (seed {SEED})")
                found.append((case.name, played(case, stage, order)))
        return report(found)

    return measure


def played(case: Case, stage: Stage, order: random.Random) -> Found:
    """What a case has shown. One that breaks is wrong, and hides no other."""
    try:
        found = case.play(stage, order)
    except Exception as error:  # whatever a case meets is its finding
        found = Found("", wrong=[f"the case broke: {type(error).__name__}: {error}"])
    progress(f"  {found.not_run or found.said} {found.seconds} {found.wrong or ''}")
    return found


def report(found: Sequence[tuple[str, Found]]) -> Report:
    """The table, and what was missed."""
    rows = [_row(name, each) for name, each in found]
    missed = [f"{name}: {'; '.join(each.wrong[:5])}" for name, each in found if each.wrong]
    skipped = [name for name, each in found if each.not_run]
    figure = f"{len(found) - len(skipped)} cases, {len(missed)} with something wrong" + (
        f"; not run: {', '.join(skipped)}" if skipped else ""
    )
    return Report(("fault", "what became of it", "seconds", "wrong"), rows, figure, missed, NOTES)


def _row(name: str, found: Found) -> Sequence[str]:
    if found.not_run:
        return (name, f"not run: {found.not_run}", "", "")
    seconds = "" if found.seconds is None else f"{found.seconds:.1f}"
    wrong = "; ".join(found.wrong) or "nothing"
    return tuple(cell.replace("|", "/") for cell in (name, found.said, seconds, wrong))
