"""Whether a run's ledgers balance, at every step that is known: ``issued = all the places``.

A ledger's curves are cumulative counts. A place that is first heard of at some step, such as a new
reason to drop, held nothing before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.watch import Curve
from dashboard.words import number, plural


@dataclass(frozen=True, slots=True)
class Place:
    """Where some of what was issued is."""

    name: str
    curve: Curve | None


@dataclass(frozen=True, slots=True)
class Account:
    """One ledger over the steps of a run."""

    unit: str
    """What is counted: prompts, tokens."""
    verb: str
    """How it came to be: issued, sampled."""
    issued: Curve | None
    places: tuple[Place, ...]

    @property
    def newest(self) -> int | None:
        """The last step that was reported; None before the first."""
        return max(self.issued.values, default=None) if self.issued else None

    def total(self, step: int) -> float | None:
        """What the places hold together; None where the points of a step are not all there."""
        held = [held_at(place.curve, step) for place in self.places]
        known = [count for count in held if count is not None]
        return sum(known) if len(known) == len(held) else None

    def equation(self) -> str:
        """The balance of the newest step in numbers; empty before the first."""
        if self.newest is None or self.issued is None:
            return ""
        parts = [
            f"{number(held)} {place.name}"
            for place in self.places
            if (held := held_at(place.curve, self.newest) or 0.0)
        ]
        issued = f"{number(self.issued.values[self.newest])} {self.unit} {self.verb}"
        return f"{issued} = {' + '.join(parts) or '0'}"

    def checked(self) -> tuple[list[int], list[int]]:
        """The steps at which every count is known, and those of them that do not balance."""
        issued = self.issued.values if self.issued else {}
        totals = {step: self.total(step) for step in sorted(issued)}
        known = [step for step, total in totals.items() if total is not None]
        return known, [step for step in known if totals[step] != issued[step]]


def held_at(curve: Curve | None, step: int) -> float | None:
    """A place's count at a step; None where a thinned curve has no point of it."""
    if curve is None or not curve.values or step < min(curve.values):
        return 0.0
    if step in curve.values:
        return curve.values[step]
    return curve.last() if step > max(curve.values) else None


def balance_words(accounts: Sequence[Account]) -> str:
    """Whether the ledgers balance, and where not."""
    found = [(account, *account.checked()) for account in accounts]
    off = [
        f"{account.unit} at step {', '.join(map(str, wrong[:5]))}"
        + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        for account, _, wrong in found
        if wrong
    ]
    if off:
        return f"Out of balance: {'; '.join(off)}. This is a fault of Lagoon: please report it."
    num_steps = max((len(known) for _, known, _ in found), default=0)
    if not num_steps:
        return "Nothing was reported yet."
    which = "the only step" if num_steps == 1 else f"each of {plural(num_steps, 'step')}"
    return f"Balanced at {which} so far."


def by_step(curves: Sequence[Curve]) -> Curve | None:
    """What cumulative ``curves`` grew by in each step, together; over a gap, in the mean of it."""
    steps = sorted({step for curve in curves for step in curve.values})
    if not steps:
        return None
    grown = Curve(curves[0].name, {}, num_total=max(curve.num_total for curve in curves))
    grown.is_thinned = any(curve.is_thinned for curve in curves)
    before_step, before = steps[0] - 1, 0.0
    for step in steps:
        held = [held_at(curve, step) for curve in curves]
        known = [count for count in held if count is not None]
        if len(known) < len(held):
            continue
        grown.values[step] = (sum(known) - before) / (step - before_step)
        grown.times[step] = next(c.times[step] for c in curves if step in c.times)
        before_step, before = step, sum(known)
    return grown
