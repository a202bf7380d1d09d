"""The arms of the study of asynchronous methods: presets with settings, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.async_curve import summary
from benchmarks.study import IN_TURN, Cell, events_of, resolved
from lagoon.corrections import CorrectionName

Settings = Mapping[str, Any]

SYNC, PACE, UNFILTERED = "grpo, synchronous", "pace", "async_grpo, unfiltered"
BOUNDED, SAO = "async_grpo, bound and correction", "sao"
PACE_PLAIN, UNFILTERED_PLAIN = "pace, no correction", "async_grpo, unfiltered, no correction"
UNFILTERED_SLOW = "async_grpo, unfiltered, no correction, the rate of pace"
PACE_RESCORED = "pace, rescored"

REGIME: Settings = {
    "environment.mean_wait_seconds": 0.3,
    "environment.heldout_waits": False,
    "evaluation.every_steps": 10,
}
"""A slow tool with a heavy tail on training tasks. Held-out tasks answer at once, so that an
evaluation beside training takes little from it."""
SYNC_STEPS = 40
ASYNC_STEPS, ASYNC_SECONDS = 400, 330
"""At most so many steps; the seconds are more than sync takes, and end the run before."""
SWEEP_SECONDS = 90
"""Of asynchronous arms in the sweep; sync has as many steps as in the study."""
FRESH: Settings = {"evaluation.num_tasks": 256, "evaluation.skip_tasks": 1024}
"""Held-out tasks that no setting was chosen on."""
VALIDATION: Settings = {"evaluation.num_tasks": 128}
VALIDATION_SEED = 100
SEARCHED: dict[str, Settings] = {
    "learning rate 5e-4": {"trainer.learning_rate": 5e-4},
    "half the batch": {"method.num_prompts": 8},
    "waits of 1 s": {"environment.mean_wait_seconds": 1.0},
    "a heavier tail": {"environment.wait_sigma": 2.0},
    "two generators": {"rollout.num_generators": 2, "resources.cpus_per_generator": 0.5},
}
"""What was varied to find where training on everything suffers."""
SEARCH_SECONDS = 160
QUICK: Settings = {"budget.max_steps": 2, "evaluation.num_tasks": 16}

LEARNING_RATES = (5e-5, 1e-4, 2e-4, 5e-4)
USUAL_RATE = 2e-4
CORRECTIONS: tuple[CorrectionName, ...] = (
    "tis", "icepop", "dis", "cispo", "decoupled", "geometric",
)  # fmt: skip
"""All but "clip", the preset's, which every learning rate is tried with, and "none", which a bound
refuses."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A preset with the settings that make it this arm."""

    preset: str
    settings: Settings = field(default_factory=dict)


ARMS: dict[str, Arm] = {
    SYNC: Arm("grpo-calculator", IN_TURN),
    "one_step_off": Arm("grpo-one-step-off-calculator"),
    UNFILTERED: Arm("grpo-async-calculator", {"method.max_staleness": None}),
    BOUNDED: Arm("grpo-async-calculator"),
    PACE: Arm("pace-calculator"),
    SAO: Arm("sao-calculator"),
    UNFILTERED_PLAIN: Arm(
        "grpo-async-calculator", {"method.max_staleness": None, "method.correction": "none"}
    ),
    PACE_PLAIN: Arm("pace-calculator", {"method.correction": "none"}),
}
"""In the order in which the first seed's cells are run; another seed begins with another arm. PACE
leaves the loss as it is: it is compared with unfiltered training under two losses, one that knows
of staleness and one that does not."""
ADDED: dict[str, Arm] = {
    UNFILTERED_SLOW: ARMS[UNFILTERED_PLAIN],
    PACE_RESCORED: Arm("pace-calculator", {"method.rescore": True}),
}
"""Arms that were added when the others had been read, each to tell one thing apart: the filter from
the learning rate, the drift of the present from that of the first look. They have no sweep of their
own and are run behind the others of their seed."""
QUICK_ARMS = (SYNC, PACE)
CHOSEN: dict[str, Settings] = {
    SYNC: {"trainer.learning_rate": 1e-4},
    "one_step_off": {"trainer.learning_rate": 2e-4},
    UNFILTERED: {"trainer.learning_rate": 2e-4},
    BOUNDED: {"trainer.learning_rate": 2e-4, "method.correction": "clip"},
    PACE: {"trainer.learning_rate": 2e-4},
    SAO: {"trainer.learning_rate": 1e-4},
    UNFILTERED_PLAIN: {"trainer.learning_rate": 1e-4},
    PACE_PLAIN: {"trainer.learning_rate": 5e-5},
    UNFILTERED_SLOW: {"trainer.learning_rate": 5e-5},
    PACE_RESCORED: {"trainer.learning_rate": 2e-4},
}
"""What the sweep has found; arms that were added have what they are compared with."""


ROTATED = 3
"""Arms by which the order of a seed is ahead of that of the seed before."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A cell of the sweep."""

    arm: str
    learning_rate: float
    correction: str
    cell: Cell


def in_turn(seed: int) -> list[str]:
    """The arms in the order in which a seed's cells are run: a machine that slows down from one
    cell to the next slows another arm each time."""
    names = list(ARMS)
    shift = seed * ROTATED % len(names)
    return [*names[shift:], *names[:shift], *ADDED]


def cell(name: str, seed: int, *, quick: bool = False) -> Cell:
    """A cell of the study."""
    changes = {**CHOSEN[name], **FRESH, **_budget(name, ASYNC_SECONDS)}
    return _cell(name, seed, changes, quick)


def tried(*, quick: bool = False) -> list[Tried]:
    """The sweep: every learning rate for every arm, every correction for the bounded one."""
    found = [_tried(name, rate, None, quick) for rate in LEARNING_RATES for name in ARMS]
    found += [_tried(BOUNDED, USUAL_RATE, correction, quick) for correction in CORRECTIONS]
    return found[:2] if quick else found


def searched(*, quick: bool = False) -> list[tuple[str, str, Cell]]:
    """The search for a regime in which staleness does harm: its name, an arm, the cell. The bounded
    arm shows what else the regime does."""
    found = []
    for regime, settings in SEARCHED.items():
        for name in (UNFILTERED, BOUNDED, PACE):
            usual = {**CHOSEN[name], **VALIDATION, **_budget(name, SEARCH_SECONDS), **settings}
            if name == PACE and "method.num_prompts" in settings:
                usual["method.target"] = 2 * settings["method.num_prompts"]  # as many batches
            found.append((regime, name, _cell(name, VALIDATION_SEED, usual, quick)))
    return found[:1] if quick else found


def long_cell(*, quick: bool = False) -> Cell:
    """SAO over 1,000 steps."""
    changes = {
        **CHOSEN[SAO],
        "budget.max_steps": 1000,
        "method.num_prompts": 32,
        "evaluation.every_steps": 50,
        **FRESH,
    }
    return _cell(SAO, VALIDATION_SEED, changes, quick)


def measure(one: Cell) -> dict[str, Any]:
    """Run a cell and keep of it what the study reads."""
    return summary(events_of(one))


def _tried(name: str, rate: float, correction: str | None, quick: bool) -> Tried:
    changes = {
        **VALIDATION,
        **_budget(name, SWEEP_SECONDS),
        "trainer.learning_rate": rate,
        **({"method.correction": correction} if correction else {}),
    }
    made = _cell(name, VALIDATION_SEED, changes, quick)
    shown = getattr(resolved(made).method, "correction", "clip")
    return Tried(name, rate, shown, made)


def _budget(name: str, async_seconds: float) -> Settings:
    if name == SYNC:
        return {"budget.max_steps": SYNC_STEPS}
    return {"budget.max_steps": ASYNC_STEPS, "budget.max_seconds": async_seconds}


def _cell(name: str, seed: int, changes: Settings, quick: bool) -> Cell:
    arm = (ARMS | ADDED)[name]
    settings = {**REGIME, **arm.settings, **changes, **(QUICK if quick else {})}
    return Cell(arm.preset, seed, changes=tuple(settings.items()))
