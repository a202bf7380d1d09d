"""Parameters of the 4x4 Sudoku environment."""

from typing import Literal

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.environments.base import EnvironmentConfig


class Sudoku4(EnvironmentConfig):
    """Fill a 4x4 Sudoku, one cell per turn; the reward comes only with the last cell.

    Blanks show their letter, and a move is a letter and a digit (``f3``). The horizon is the
    number of blanks: a move that breaks the rules ends the episode, as none could mend it.
    """

    title = "Sudoku 4x4"

    name: Literal["sudoku4"] = "sudoku4"

    num_blanks: int = Field(4, ge=1, le=12)
    """Empty cells of a puzzle: the horizon of an episode."""
    instruction: str = ""
    """System message that explains the task; the tiny model was taught without one."""
    max_turns: int = Field(12, ge=1, le=64)
    """Model turns after which an episode is cut; a solution takes as many as there are blanks."""
    max_tokens_per_turn: int = Field(4, ge=1, le=64)
    """Sampled tokens after which a turn is cut."""

    def clashes(self) -> list[Clash]:
        """Fewer turns than a solution takes."""
        if self.max_turns >= self.num_blanks:
            return []
        message = (
            f"max_turns {self.max_turns} is too short for num_blanks {self.num_blanks}: "
            "a solution takes one turn for each blank"
        )
        return [Clash(("environment.max_turns", "environment.num_blanks"), message)]
