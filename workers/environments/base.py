"""What an environment is: an async, single-use conversation partner that pays a reward."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeVar

from lagoon.trajectory import Split

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]
Sleep = Callable[[float], Awaitable[object]]

HELD_OUT_SHARE = 0.25
"""Share of the space of tasks that belongs to the held-out split."""
MAX_DRAWS = 10_000
"""Draws after which a split is taken to have no task of the difficulty asked for."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The environment's answer to a turn of the model."""

    messages: tuple[Message, ...] = ()
    """What the environment says next; empty when the episode is over."""
    reward: float = 0.0
    done: bool = False
    success: bool = False
    """True when the whole task is solved; only ever on the last observation."""
    tool_error: str | None = None
    """Why a tool refused the turn: data on the trajectory, not an exception."""
    wait_seconds: float = 0.0
    """Time really spent waiting for a tool."""


class Environment(Protocol):
    """One episode of one task: started once, stepped until done or cut, never reset.

    It does not count its turns: whoever plays it cuts it at ``max_turns``.
    """

    async def start(self) -> tuple[Message, ...]:
        """The messages that the model sees first."""
        ...

    async def step(self, text: str) -> Observation:
        """Answer the model's decoded turn; not called again once an observation is done."""
        ...


class NoSuchTask(ValueError):
    """The split holds no task of the difficulty asked for."""


def split_of(canonical: str) -> Split:
    """The split that a task belongs to, by a hash of its content alone.

    Equal content always falls on the same side, whatever seed, index or difficulty led to it, so
    that the splits cannot overlap.
    """
    digest = blake2b(canonical.encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "little") < HELD_OUT_SHARE * 2**64 else "train"


def first_in_split(draw: Callable[[], T], canonical: Callable[[T], str], split: Split) -> T:
    """The first of successive draws whose content belongs to ``split``.

    Raises ``NoSuchTask`` when ``MAX_DRAWS`` draws found none.
    """
    for _ in range(MAX_DRAWS):
        task = draw()
        if split_of(canonical(task)) == split:
            return task
    raise NoSuchTask(f"no {split} task of this difficulty in {MAX_DRAWS} draws: make it harder")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for anything outside itself."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
