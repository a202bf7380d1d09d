from itertools import product

import pytest

from lagoon.environments.sudoku4 import Sudoku4
from lagoon.trajectory import Split
from workers.environments import Message, Observation, demonstrate, make_environment
from workers.environments.sudoku4 import (
    SOLVED,
    Sudoku4Environment,
    drawn,
    has_one_solution,
    played,
    solution,
    task,
)

CONFIG = Sudoku4()
PUZZLE = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 0, 0)
"""Two blanks: o and p, to be 2 and 1."""


def units() -> list[list[int]]:
    rows = [[4 * r + c for c in range(4)] for r in range(4)]
    columns = [[4 * r + c for r in range(4)] for c in range(4)]
    boxes = [
        [4 * (2 * a + r) + 2 * b + c for r, c in product(range(2), range(2))]
        for a, b in product(range(2), range(2))
    ]
    return rows + columns + boxes


def test_there_are_288_complete_boards_and_each_obeys_the_rules() -> None:
    assert len(set(SOLVED)) == 288
    for board in SOLVED:
        assert all(sorted(board[cell] for cell in unit) == [1, 2, 3, 4] for unit in units())


def test_a_puzzle_is_drawn_with_letters_for_its_blanks() -> None:
    assert drawn(PUZZLE) == "1234\n3412\n2143\n43op"


@pytest.mark.parametrize("num_blanks", [3, 6, 10])
def test_puzzles_have_one_solution_found_by_trying_everything(num_blanks: int) -> None:
    for index in range(20):
        board = task(Sudoku4(num_blanks=num_blanks), "train", index)
        agreeing = [
            solved
            for solved in SOLVED
            if all(digit in (0, solved[cell]) for cell, digit in enumerate(board))
        ]
        assert agreeing == [solution(board)]
    assert not has_one_solution((0,) * 16)


async def test_only_the_last_right_move_pays() -> None:
    world = Sudoku4Environment(CONFIG, PUZZLE)
    assert await world.start() == (Message("user", drawn(PUZZLE)),)
    assert await world.step("p1") == Observation((Message("tool", "ok"),))
    assert await world.step("o2") == Observation(reward=1.0, done=True, success=True)


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        ("a1", "not blank"),
        ("o3", "stands already"),
        ("o5", "not a move"),
        ("q1", "not a move"),
        ("o", "not a move"),
        ("", "not a move"),
        ("o22", "not a move"),
    ],
)
async def test_a_move_against_the_rules_ends_the_episode_without_pay(
    move: str, reason: str
) -> None:
    end = await Sudoku4Environment(CONFIG, PUZZLE).step(move)
    assert (end.done, end.reward, end.success) == (True, 0.0, False)
    assert reason in str(end.tool_error)


async def test_a_wrong_move_that_breaks_no_rule_yet_cannot_end_in_success() -> None:
    board = next(
        board
        for board in (task(Sudoku4(num_blanks=10), "train", index) for index in range(50))
        if _tempting(board)
    )
    cell, digit = _tempting(board)[0]
    after = played(board, f"{'abcdefghijklmnop'[cell]}{digit}")
    assert after[cell] == digit != solution(board)[cell]
    assert not any(
        all(given in (0, solved[at]) for at, given in enumerate(after)) for solved in SOLVED
    )


def _tempting(board: tuple[int, ...]) -> list[tuple[int, int]]:
    solved = solution(board)
    found = []
    for cell, digit in product(range(16), range(1, 5)):
        if board[cell] or digit == solved[cell]:
            continue
        try:
            played(board, f"{'abcdefghijklmnop'[cell]}{digit}")
        except ValueError:
            continue
        found.append((cell, digit))
    return found


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_every_demonstration_succeeds_when_played(split: Split) -> None:
    for index in range(100):
        messages = demonstrate(CONFIG, split, index)
        world = make_environment(CONFIG, split, index)
        heard = list(await world.start())
        for turn in (message for message in messages if message.role == "assistant"):
            observation = await world.step(turn.text)
            heard += [turn, *observation.messages]
        assert heard == messages
        assert observation.success
        moves = [message for message in messages if message.role == "assistant"]
        assert len(moves) == CONFIG.num_blanks
