"""Parameters of the 4x4 Sudoku environment."""

from typing import Literal

from pydantic import Field

from lagoon.environments.base import EnvironmentConfig


class Sudoku4(EnvironmentConfig):
    """Fill a 4x4 Sudoku, one cell per turn; the reward comes only with the last cell.

    The horizon is the number of blanks.
    """

    title = "Sudoku 4x4"

    name: Literal["sudoku4"] = "sudoku4"

    num_blanks: int = Field(6, ge=1, le=12)
    """Empty cells of a puzzle: the horizon of an episode."""
    max_turns: int = Field(12, ge=1, le=64)
    """Model turns after which an episode is cut; it also ends after as many turns as blanks."""
    max_tokens_per_turn: int = Field(4, ge=1, le=64)
    """Sampled tokens after which a turn is cut."""
