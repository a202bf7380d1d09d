"""What a loop needs to go on where it was, besides weights and optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from lagoon.books import Tally
from lagoon.checkpoints import LOOP, DamagedCheckpoint
from lagoon.ledger import Ledger
from lagoon.trajectory import TrajectoryGroup


@dataclass(frozen=True, slots=True)
class LoopState:
    """A loop between two updates."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants", extra="forbid")

    version: int
    """Updates done."""
    evaluated: int
    """The newest version that was evaluated; -1 for none."""
    seconds: float
    """Training time, counted against the budget."""
    num_tokens: int
    """Sampled for training so far, whatever became of them."""
    num_samples: int
    """Trajectories trained on so far."""
    ledger: Ledger
    in_flight: tuple[int, ...] = ()
    """Positions, in the run's prompt order, that were being generated: they are issued again."""
    pool: tuple[TrajectoryGroup, ...] = ()
    """Finished groups that wait for their update, oldest first."""
    tokens: Ledger | None = None
    """Sampled tokens by where they are; None: those of the pool are all that is known."""
    trained: Tally = field(default_factory=Tally)
    """Trajectories that were trained on."""
    lost: dict[str, Tally] = field(default_factory=dict)
    """Trajectories that were dropped, by reason."""
    memory: dict[str, float] = field(default_factory=dict)
    """What the method's last selection from the pool left for the next."""


_AS_JSON = TypeAdapter(LoopState)


def write_state(folder: Path, state: LoopState) -> None:
    """Make the state a part of the checkpoint in ``folder``."""
    path = folder / LOOP
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(state_as_json(state))


def read_state(folder: Path) -> LoopState:
    """The state in a checkpoint. Raises ``DamagedCheckpoint``."""
    try:
        return state_from_json((folder / LOOP).read_bytes())
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise DamagedCheckpoint(f"its counters cannot be read: {first}") from error


def state_as_json(state: LoopState) -> bytes:
    """All of a state, with every number as it is."""
    return _AS_JSON.dump_json(state)


def state_from_json(text: bytes | str) -> LoopState:
    """Raises ``pydantic.ValidationError`` for what is no state."""
    return _AS_JSON.validate_json(text)
