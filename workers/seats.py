"""What the driver knows of one generator: what it plays, and whether its word is taken.

::

    suspect ─▶ open: given episodes, what it gives back is handed on
       ▲         │ its weights change
       └─────────┘ what it gives back is held until it opens again, or lost
    vacant: its process is gone
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lagoon.trajectory import Trajectory
from workers.rollout import EpisodeRequest

if TYPE_CHECKING:
    from workers.handles import GeneratorHandle

LossReason = Literal["generator_died", "unproved_weights", "given_up"]
"""Why episodes come to nothing: the first two are played again."""


class EpisodesLost(Exception):
    """Episodes whose trajectories never come, or cannot be trusted: they are to be played again."""

    def __init__(self, reason: LossReason) -> None:
        super().__init__(reason)
        self.reason = reason


def again(request: EpisodeRequest, attempt: int) -> EpisodeRequest:
    """The request under a name of its own: what was lost may still be played somewhere."""
    if attempt == 0:
        return request
    return replace(request, trajectory_id=f"{request.trajectory_id}+{attempt}")


@dataclass(slots=True)
class Seat:
    """A generator's place among those of its run."""

    handle: GeneratorHandle
    playing: set[str] = field(default_factory=set)
    """Episodes that it has not given back."""
    unwanted: set[str] = field(default_factory=set)
    """Those of them that nobody waits for: it is being told."""
    is_open: bool = False
    """It has proved its weights and is given episodes."""
    held: list[Trajectory] | None = None
    """What it gave back since its weights changed, until it proves them; None: it has."""
    is_gone: bool = False
    """Its process died, and another one is being started in its place."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it plays nothing."""

    def __post_init__(self) -> None:
        self.idle.set()

    def began(self, episodes: Iterable[str]) -> None:
        """It was given episodes."""
        self.playing.update(episodes)
        self.idle.clear()

    def ended(self, episode: str) -> None:
        """It gave one back, or has given it up."""
        self.playing.discard(episode)
        self.unwanted.discard(episode)
        if not self.playing:
            self.idle.set()

    def suspect(self) -> None:
        """Its weights change: from here on it has to prove them."""
        self.is_open = False
        if self.held is None:
            self.held = []

    def open(self) -> list[Trajectory]:
        """It has proved its weights. Returns what was held, which can be handed on."""
        held, self.held, self.is_open = self.held or [], None, True
        return held

    def disown(self) -> list[str]:
        """Its weights are not known. Returns the episodes that were played with them: those held
        and those in flight."""
        held, self.held = self.held or [], []
        return [*self.playing, *(trajectory.trajectory_id for trajectory in held)]

    def vacate(self) -> list[str]:
        """Its process is gone. Returns the episodes that went with it."""
        lost = self.disown()
        self.is_gone, self.is_open, self.held = True, False, None
        self.playing.clear()
        self.unwanted.clear()
        self.idle.set()
        return lost
