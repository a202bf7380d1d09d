"""Parameters of the calculator environment."""

from typing import Literal

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.environments.base import EnvironmentConfig


class Calculator(EnvironmentConfig):
    """Evaluate an arithmetic expression, one tool call at a time.

    The model writes a call (``calc:7*2``), a calculator answers after a real, heavy-tailed wait,
    and only the final answer (``answer:14``) is rewarded.
    """

    title = "Calculator with a slow tool"

    name: Literal["calculator"] = "calculator"

    num_operations: int = Field(3, ge=1, le=8)
    """Operations in the expression: the number of tool calls a solution needs."""
    max_operand: int = Field(9, ge=2, le=99)
    """Largest number in the expression."""
    mean_wait_seconds: float = Field(0.05, ge=0, le=60)
    """Mean of the tool's lognormal waiting time; 0 answers at once."""
    wait_sigma: float = Field(1.0, ge=0, le=3)
    """Spread of the waiting time's logarithm: the weight of its tail."""
    heldout_waits: bool = True
    """Whether the tool is as slow on held-out tasks. Without, an evaluation takes the generators
    for a shorter time, and finds the same success."""
    instruction: str = ""
    """System message that explains the task; the tiny model was taught without one."""
    max_turns: int = Field(6, ge=1, le=64)
    """Model turns after which an episode is cut; a solution takes one more than the operations."""
    max_tokens_per_turn: int = Field(12, ge=1, le=256)
    """Sampled tokens after which a turn is cut."""

    def clashes(self) -> list[Clash]:
        """Fewer turns than a solution takes; held-out waits where the tool never waits."""
        found = []
        if self.max_turns <= self.num_operations:
            message = (
                f"max_turns {self.max_turns} is too short for num_operations "
                f"{self.num_operations}: a solution takes one turn more than operations"
            )
            found.append(Clash(("environment.max_turns", "environment.num_operations"), message))
        if self.mean_wait_seconds == 0 and not self.heldout_waits:
            message = "the tool never waits: heldout_waits has no effect"
            fields = ("environment.heldout_waits", "environment.mean_wait_seconds")
            found.append(Clash(fields, message))
        return found
