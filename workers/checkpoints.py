"""A run's checkpoints on disk: written whole, the newest and the best kept.

::

    parts (weights, optimizer) ─┐
    loop's state ───────────────┴─▶ manifest ─▶ announced ─▶ what is past ``keep`` is removed

The manifest comes last, so that a kill at any moment leaves the checkpoint before it as it was. A
save that fails removes what it had written.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lagoon.checkpoints import DamagedCheckpoint, Manifest, described_files, read_manifest, seal
from lagoon.config import RunConfig
from lagoon.events import CheckpointLogged
from lagoon.methods import Evolution, PolicyGradient
from workers.claim import UNCLAIMED, Claim, FencedOut
from workers.failures import RunFailed
from workers.loops.state import LoopState, write_state
from workers.models.writing import partials
from workers.sink import Sink

FINAL = "final"
logger = logging.getLogger(__name__)

SaveParts = Callable[[Path], Awaitable[None]]
"""Writes the weights, as a model folder, and what else the loop's actors hold."""


class NotSaved(RunFailed):
    """A checkpoint could not be written, as on a full disk. What was written of it is removed; the
    checkpoints before it, and the weights in memory, are as they were."""


@dataclass(frozen=True, slots=True)
class Written:
    """The weights of a checkpoint to be, on disk, and the loop's state that belongs to them."""

    folder: Path
    state: LoopState


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint on disk."""

    path: Path
    step: int
    heldout_success: float | None


class Checkpoints:
    """Saves a run's checkpoints, and removes those that are not to be kept."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        sink: Sink,
        clock: Callable[[], float],
        earlier: Sequence[Kept] = (),
        claim: Claim = UNCLAIMED,
    ) -> None:
        """``earlier``: the run's checkpoints of earlier attempts, oldest first; ``claim``: the
        right to write among the run's files."""
        self.folder, self.claim = folder, claim
        self._config, self._sink, self._clock = config, sink, clock
        self._kept = list(earlier)
        self._saved_step: int | None = None
        self.is_behind = False
        """True from a save that failed to the next one that does not."""

    @property
    def best(self) -> float | None:
        """Held-out success of the best one that is kept."""
        known = [kept.heldout_success for kept in self._kept if kept.heldout_success is not None]
        return max(known, default=None)

    def is_saved(self, step: int) -> bool:
        """Whether the newest one is of this step."""
        return self._saved_step == step

    async def save(
        self,
        state: LoopState,
        save_parts: SaveParts,
        heldout_success: float | None,
        *,
        is_final: bool,
    ) -> None:
        """Save a checkpoint, announce it, and remove what is past ``keep``.

        Raises ``FencedOut`` when a newer driver has taken the run over, and ``NotSaved`` when it
        cannot be written; an actor that dies over it is raised as such.
        """
        written = await self.write(state, save_parts, is_final=is_final)
        await self.announce(written, heldout_success, is_final=is_final)

    async def write(
        self, state: LoopState, save_parts: SaveParts, *, is_final: bool = False
    ) -> Written:
        """Write the weights of a checkpoint, which is none until it is announced.

        Raises as ``save`` does.
        """
        folder = self.folder / (FINAL if is_final else f"step-{state.version:06d}")
        await asyncio.to_thread(self.claim.check)  # the parts may be a newer driver's by name
        async with self._whole_or_nothing(folder, state.version):
            await save_parts(folder)
        return Written(folder, state)

    async def announce(
        self, written: Written, heldout_success: float | None, *, is_final: bool
    ) -> None:
        """Make what was written a checkpoint, tell of it, and remove what is past ``keep``.

        Raises as ``save`` does.
        """
        folder, state = written.folder, written.state
        async with self._whole_or_nothing(folder, state.version):
            manifest = await asyncio.to_thread(
                self._seal, folder, state, heldout_success, is_final=is_final
            )
        self.is_behind = False
        best = self.best
        is_best = heldout_success is not None and (best is None or heldout_success > best)
        self._kept.append(Kept(folder, state.version, heldout_success))
        self._saved_step = state.version
        # The final weights take the place of no other: those before may be better.
        removed = [] if is_final else self._past_keep()
        self._sink.log(
            CheckpointLogged(
                at=self._clock(),
                step=state.version,
                path=str(folder),
                is_final=is_final,
                dropped=tuple(str(kept.path) for kept in removed),
                num_bytes=manifest.num_bytes,
                is_best=is_best,
            )
        )
        if removed:  # a kill must not leave the platform with those alone that are removed now
            await asyncio.to_thread(self._sink.flush)
        for kept in removed:
            self._kept.remove(kept)
            await asyncio.to_thread(self._remove, kept.path)

    @contextlib.asynccontextmanager
    async def _whole_or_nothing(self, folder: Path, step: int) -> AsyncIterator[None]:
        """Remove what was written of a checkpoint when the rest of it cannot be."""
        try:
            yield
        except FencedOut:
            raise  # what lies there may be the newer driver's
        except Exception as error:  # whatever it is: what was half written takes no room
            self.is_behind = True
            await asyncio.to_thread(self._remove_unfinished, folder)
            if isinstance(error, RunFailed) and error.is_transient:
                raise
            raise _not_saved(step, error) from error

    def _seal(
        self, folder: Path, state: LoopState, heldout_success: float | None, *, is_final: bool
    ) -> Manifest:
        write_state(folder, state)
        manifest = Manifest(
            at=self._clock(),
            step=state.version,
            method=self._config.method.name,  # type: ignore[attr-defined]  # each declares one
            model=self._config.model.path,
            is_final=is_final,
            heldout_success=heldout_success,
            prompts=prompts_of(self._config),
            kept=tuple(str(kept.path) for kept in self._kept),
            files=described_files(folder),
        )
        with self.claim.held():
            seal(folder, manifest)
        return manifest

    def _remove(self, folder: Path) -> None:
        with self.claim.held():
            _remove(folder)

    def _remove_unfinished(self, folder: Path) -> None:
        with self.claim.held():
            _remove_unfinished(folder)

    def _past_keep(self) -> list[Kept]:
        """What to remove: neither among the newest, nor the best, nor final weights."""
        best = self.best
        first_best = next((k for k in self._kept if k.heldout_success == best), None)
        older = [kept for kept in self._kept if kept.path.name != FINAL]
        older = older[: -self._config.checkpoint.keep]
        return [kept for kept in older if best is None or kept is not first_best]


def prompts_of(config: RunConfig) -> str:
    """A digest of all that gives a ledger, a pool and positions in flight their meaning."""
    method = config.method
    if isinstance(method, PolicyGradient):
        # Any other bound may change while a run goes on (``lagoon/controls.py``).
        bound = 0 if method.staleness_bound == 0 else None
        sizes = [method.prompts_per_step, method.trajectories_per_prompt, bound]
    else:
        sizes = [cast(Evolution, method).members_per_generation]
    parts = [config.seed, config.environment.model_dump(mode="json"), sizes]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def kept_before(folder: Path, manifest: Manifest) -> list[Kept]:
    """The checkpoint that a run goes on from, and those that were kept beside it.

    The manifest has their paths as they were. Where the home was restored into another folder, they
    are looked for beside ``folder``: what is at the old paths may be the home of a live run, and
    what is kept here is removed later.
    """
    attempts = folder.parents[2]  # …/attempts/ID/checkpoints/step-000040
    kept = (attempts.joinpath(*Path(path).parts[-3:]) for path in manifest.kept)
    found = []
    for path in (*kept, folder):
        try:
            known = read_manifest(path)
        except DamagedCheckpoint:
            continue  # removed since, or of no use
        found.append(Kept(path, known.step, known.heldout_success))
    return found


def _not_saved(step: int, error: Exception) -> NotSaved:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    details = error.details if isinstance(error, RunFailed) else ""
    words = f"The weights of step {step} could not be saved: {cause}. Earlier checkpoints are safe."
    return NotSaved(words, details)


def _remove_unfinished(folder: Path) -> None:
    """Remove what a save that failed has left; there is nothing when it could not even begin."""
    weights, partial = partials(folder)
    with contextlib.suppress(OSError):
        weights.unlink(missing_ok=True)
    for path in (partial, folder):
        if path.exists():
            _remove(path)


def _remove(folder: Path) -> None:
    """Remove a checkpoint. One that cannot be removed costs its space, not the run."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        logger.warning("the checkpoint %s could not be removed: %s", folder, error)
