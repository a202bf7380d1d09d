"""What an environment is: async, single-use, one episode from ``start`` to ``done``."""

from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment answers to a turn of the model."""

    messages: tuple[Message, ...] = ()
    """What it says next; empty when the episode is over."""
    reward: float = 0.0
    done: bool = False
    success: bool = False
    tool_error: str | None = None
    """Set when a tool failed: data on the trajectory, not an exception."""
    wait_seconds: float = 0.0
    """How long the answer really took."""


class Environment(Protocol):
    """One episode. There is no reset: make a new one."""

    async def start(self) -> tuple[Message, ...]:
        """The opening messages."""
        ...

    async def step(self, text: str) -> Observation:
        """Answer the model's turn, given as text."""
        ...
