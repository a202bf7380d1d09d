"""What an attempt goes on from: the newest of a run's checkpoints that is whole."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from lagoon.checkpoints import (
    MANIFEST,
    UPDATES,
    DamagedCheckpoint,
    Manifest,
    read_manifest,
    verified,
)
from lagoon.config import RunConfig
from lagoon.ledger import Ledger
from lagoon.methods import Evolution, PolicyGradient
from workers.checkpoints import Kept, kept_before, prompts_of
from workers.failures import RunFailed
from workers.loops.state import LoopState, read_state
from workers.loops.updates import Update, updates_after

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What an attempt may go on from."""

    checkpoints: tuple[Path, ...] = ()
    """Newest first."""
    updates: tuple[Path, ...] = ()
    """Logs of updates of earlier attempts, the newest attempt's first."""
    owns: bool = True
    """They are the run's own: older ones are removed as it goes on. Not so for a fork."""
    is_fork: bool = False
    """They are those of a run that this one is not a part of: its training time begins at 0."""


FROM_THE_START = Candidates()


def candidates_in(folder: Path) -> Candidates:
    """A checkpoint itself, or all those in the output folder of a run without a platform.

    They belong to another run, and stay as they are.
    """
    if (folder / MANIFEST).exists() or not (folder / "checkpoints").is_dir():
        return Candidates((folder,), owns=False)
    found = []
    for path in (folder / "checkpoints").iterdir():
        try:
            found.append((read_manifest(path).at, path))
        except DamagedCheckpoint:
            continue  # cut short, or not a checkpoint at all
    newest_first = tuple(path for _, path in sorted(found, reverse=True))
    return Candidates(newest_first, (folder / "checkpoints" / UPDATES,), owns=False)


@dataclass(frozen=True, slots=True)
class Restored:
    """Where an attempt begins."""

    folder: Path | None
    """The checkpoint; None: the run's starting model."""
    state: LoopState
    updates: tuple[Update, ...] = ()
    """Updates after ``state`` that are made, and reported, again before anything new is tried."""
    kept: tuple[Kept, ...] = ()
    heldout_success: float | None = None
    refused: tuple[str, ...] = ()
    """Newer checkpoints that are damaged, each with the reason."""


def restored(config: RunConfig, candidates: Candidates) -> Restored:
    """The newest checkpoint that is whole, with the updates after it.

    Raises ``RunFailed`` when there are checkpoints and none is whole.
    """
    refused: list[str] = []
    for folder in candidates.checkpoints:
        try:
            manifest, state = _opened(folder, config)
        except DamagedCheckpoint as error:
            refused.append(f"{folder}: {error}")
            continue
        success = manifest.heldout_success
        if not candidates.owns and manifest.prompts not in ("", prompts_of(config)):
            state, success = _with_own_prompts(state, config), None
        if candidates.is_fork:
            state = replace(state, seconds=0.0)
        return Restored(
            folder,
            state,
            tuple(updates_after(candidates.updates, state.version)),
            tuple(kept_before(folder, manifest)) if candidates.owns else (),
            success,
            tuple(refused),
        )
    if refused:
        raise RunFailed(
            "None of the checkpoints that the run could go on from is whole; they are as they "
            f"were. {'; '.join(refused)}"
        )
    start = LoopState(0, evaluated=-1, seconds=0.0, num_tokens=0, num_samples=0, ledger=Ledger())
    return Restored(None, start, tuple(updates_after(candidates.updates, 0)))


def _with_own_prompts(state: LoopState, config: RunConfig) -> LoopState:
    """The state, for a run of other batches, another environment or another seed than the one that
    the checkpoint is of: its pool and its prompts in flight are of no use, nor is its evaluation,
    and its ledger would let too many rollouts start, or none ever."""
    method = config.method
    batch = (
        method.prompts_per_step
        if isinstance(method, PolicyGradient)
        else cast(Evolution, method).members_per_generation
    )
    done = state.version * batch
    logger.info("The run differs from the checkpoint's: its prompts begin at number %d.", done)
    ledger = Ledger(issued=done, trained=done)
    return LoopState(
        state.version, -1, state.seconds, state.num_tokens, state.num_samples, ledger=ledger
    )


def _opened(folder: Path, config: RunConfig) -> tuple[Manifest, LoopState]:
    name = config.method.name  # type: ignore[attr-defined]  # declared by each method
    manifest = verified(folder, method=name, model=config.model.path)
    state = read_state(folder)
    if state.version != manifest.step:
        raise DamagedCheckpoint(f"its counters are of step {state.version}, not {manifest.step}")
    return manifest, state
