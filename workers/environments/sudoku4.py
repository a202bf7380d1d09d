"""4x4 Sudoku, one move a turn.

::

    user       2b4d          A blank shows the letter of its cell, a to p in reading order.
               43gh
               ...
    assistant  b1            the cell and its digit
    tool       ok
    ...                      after the last blank: reward 1

Every row, column and 2x2 box holds each of 1 to 4 once. A move that repeats a digit, hits a
given cell or cannot be read ends the episode with reward 0: moves are final, so nothing could
mend it, and playing on would only cost time. A move that is wrong but breaks no rule yet is
kept; as a puzzle has one solution, it runs into a broken rule later.
"""

from itertools import permutations
from random import Random

from lagoon.environments.sudoku4 import Sudoku4
from lagoon.trajectory import Split
from workers.environments.base import Environment, Message, Observation, first_in_split

LETTERS = "abcdefghijklmnop"
Board = tuple[int, ...]
"""Sixteen cells in reading order; 0 is blank."""


def _peers(cell: int) -> frozenset[int]:
    row, column = divmod(cell, 4)

    def shares_unit(other: int) -> bool:
        r, c = divmod(other, 4)
        return r == row or c == column or (r // 2, c // 2) == (row // 2, column // 2)

    return frozenset(other for other in range(16) if other != cell and shares_unit(other))


PEERS: tuple[frozenset[int], ...] = tuple(_peers(cell) for cell in range(16))
"""The seven other cells that share a row, column or box with each cell."""


def candidates(board: Board, cell: int) -> set[int]:
    """Digits that break no rule in ``cell``."""
    return {1, 2, 3, 4} - {board[peer] for peer in PEERS[cell]}


def _solved_boards() -> list[Board]:
    """All 288 complete boards."""
    boards: list[Board] = [()]
    for _ in range(4):
        longer = ((*board, *row) for board in boards for row in permutations((1, 2, 3, 4)))
        boards = [board for board in longer if _is_consistent(board)]
    return boards


def _is_consistent(board: Board) -> bool:
    """True when no digit of the first, complete rows repeats."""
    return all(
        board[cell] != board[peer]
        for cell in range(len(board))
        for peer in PEERS[cell]
        if peer < len(board)
    )


SOLVED: list[Board] = _solved_boards()
_HOLDERS: list[list[int]] = [
    [
        sum(1 << i for i, board in enumerate(SOLVED) if digit in (0, board[cell]))
        for digit in range(5)
    ]
    for cell in range(16)
]
"""Bit ``i`` of ``_HOLDERS[cell][digit]``: complete board ``i`` has the digit there (0: any)."""


def solutions(board: Board) -> int:
    """The complete boards that agree with the given digits, as bits of their place in SOLVED."""
    found = (1 << len(SOLVED)) - 1
    for holders, digit in zip(_HOLDERS, board, strict=True):
        found &= holders[digit]
    return found


def has_one_solution(board: Board) -> bool:
    """True when exactly one complete board agrees with the given digits."""
    return solutions(board).bit_count() == 1


def solution(board: Board) -> Board:
    """The complete board of a puzzle that has only one."""
    return SOLVED[solutions(board).bit_length() - 1]


def canonical(board: Board) -> str:
    """The puzzle with its digits renamed in order of appearance: renaming makes no new puzzle."""
    names: dict[int, str] = {0: "."}
    return "".join(names.setdefault(digit, str(len(names))) for digit in board)


def task(config: Sudoku4, split: Split, index: int) -> Board:
    """The puzzle of a task: ``num_blanks`` blanks and one solution. Raises ``NoSuchTask``."""
    random = Random(f"sudoku4 {config.num_blanks} {split} {index}")
    return first_in_split(lambda: _draw(random, config.num_blanks), canonical, split)


def _draw(random: Random, num_blanks: int) -> Board:
    """Blank out cells in random order wherever the solution stays unique; retry dead ends."""
    while True:
        board = list(random.choice(SOLVED))
        for cell in random.sample(range(16), 16):
            digit, board[cell] = board[cell], 0
            if not has_one_solution(tuple(board)):
                board[cell] = digit
            if board.count(0) == num_blanks:
                return tuple(board)


def drawn(board: Board) -> str:
    """Four rows; digits where given, the cell's letter where blank."""
    cells = [str(digit) if digit else LETTERS[cell] for cell, digit in enumerate(board)]
    return "\n".join("".join(cells[row : row + 4]) for row in range(0, 16, 4))


class Sudoku4Environment:
    """One puzzle."""

    def __init__(self, config: Sudoku4, board: Board) -> None:
        self._config = config
        self._board = board

    async def start(self) -> tuple[Message, ...]:
        """The instruction, if any, and the puzzle."""
        instruction = self._config.instruction
        system = (Message("system", instruction),) if instruction else ()
        return (*system, Message("user", drawn(self._board)))

    async def step(self, text: str) -> Observation:
        """Play one move."""
        try:
            self._board = played(self._board, text.strip())
        except ValueError as error:
            return Observation(done=True, tool_error=str(error))
        if 0 not in self._board:
            return Observation(reward=1.0, done=True, success=True)
        return Observation((Message("tool", "ok"),))


def played(board: Board, move: str) -> Board:
    """The board after a move. Raises ``ValueError`` for a move that breaks a rule."""
    if len(move) != 2 or move[0] not in LETTERS or move[1] not in "1234":
        raise ValueError("not a move: a cell's letter and a digit from 1 to 4")
    cell, digit = LETTERS.index(move[0]), int(move[1])
    if board[cell]:
        raise ValueError(f"cell {move[0]} is not blank")
    if digit not in candidates(board, cell):
        raise ValueError(f"{digit} stands already in the row, column or box of {move[0]}")
    return (*board[:cell], digit, *board[cell + 1 :])


def make(config: Sudoku4, split: Split, index: int, attempt: int) -> Environment:
    """One episode; the world has no randomness of its own."""
    return Sudoku4Environment(config, task(config, split, index))


def num_tasks(config: Sudoku4, split: Split) -> None:
    """Endless."""


def demonstrate(config: Sudoku4, split: Split, index: int) -> list[Message]:
    """Fill the blanks in reading order."""
    board = task(config, split, index)
    messages = [Message("user", drawn(board))]
    for cell, digit in enumerate(solution(board)):
        if not board[cell]:
            messages += [Message("assistant", f"{LETTERS[cell]}{digit}"), Message("tool", "ok")]
    return messages[:-1]
