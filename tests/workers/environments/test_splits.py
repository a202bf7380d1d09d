import pytest

from lagoon.environments import EnvironmentConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from lagoon.trajectory import Split
from workers.environments import NoSuchTask, calculator, make_environment, num_tasks, sudoku4
from workers.environments.base import finished, first_in_split, split_of


def shown(config: EnvironmentConfig, split: Split, index: int) -> str:
    messages = finished(make_environment(config, split, index).start())
    return "\n".join(message.text for message in messages)


@pytest.mark.parametrize("config", [Calculator(), Sudoku4()], ids=["calculator", "sudoku4"])
def test_a_task_is_a_function_of_configuration_split_and_index(config: EnvironmentConfig) -> None:
    first = [shown(config, "train", index) for index in range(50)]
    again = [shown(config, "train", index) for index in reversed(range(50))]
    assert first == again[::-1]
    assert len(set(first)) > 45


@pytest.mark.parametrize("config", [Calculator(), Sudoku4()], ids=["calculator", "sudoku4"])
def test_the_default_difficulty_has_over_512_held_out_tasks(config: EnvironmentConfig) -> None:
    assert len({shown(config, "heldout", index) for index in range(600)}) >= 512
    assert num_tasks(config, "heldout") is None


def test_no_expression_is_in_both_splits() -> None:
    small = Calculator(num_operations=1, max_operand=9)
    train = {calculator.task(small, "train", index) for index in range(3000)}
    heldout = {calculator.task(small, "heldout", index) for index in range(3000)}
    assert len(train | heldout) == 3 * 81  # the whole space was seen, so this is exhaustive
    assert not train & heldout


def test_no_puzzle_is_in_both_splits_even_with_its_digits_renamed() -> None:
    small = Sudoku4(num_blanks=1)
    canonical = sudoku4.canonical
    train = {canonical(sudoku4.task(small, "train", index)) for index in range(3000)}
    heldout = {canonical(sudoku4.task(small, "heldout", index)) for index in range(3000)}
    assert len(train | heldout) == 288 // 24 * 16  # every puzzle up to renaming was seen
    assert not train & heldout


def test_renaming_digits_leaves_the_canonical_puzzle_alone() -> None:
    board = sudoku4.task(Sudoku4(), "train", 0)
    renamed = tuple({0: 0, 1: 3, 2: 1, 3: 4, 4: 2}[digit] for digit in board)
    assert renamed != board
    assert sudoku4.canonical(renamed) == sudoku4.canonical(board)


def test_about_a_quarter_of_all_content_is_held_out() -> None:
    heldout = sum(split_of(f"content {n}") == "heldout" for n in range(10_000))
    assert 2300 < heldout < 2700


def test_a_split_without_tasks_is_refused_instead_of_searched_forever() -> None:
    with pytest.raises(NoSuchTask, match="heldout"):
        first_in_split(lambda: "always the same", str, _other(split_of("always the same")))


def _other(split: Split) -> Split:
    return "heldout" if split == "train" else "train"


@pytest.mark.parametrize("num_blanks", range(1, 13))
def test_every_number_of_blanks_has_tasks_in_both_splits(num_blanks: int) -> None:
    config = Sudoku4(num_blanks=num_blanks)
    assert sudoku4.task(config, "train", 0).count(0) == num_blanks
    assert sudoku4.task(config, "heldout", 0).count(0) == num_blanks


@pytest.mark.parametrize(("operations", "operand"), [(1, 2), (8, 2), (1, 99), (8, 99)])
def test_every_size_of_expression_has_tasks_in_both_splits(operations: int, operand: int) -> None:
    config = Calculator(num_operations=operations, max_operand=operand, max_turns=9)
    assert calculator.task(config, "train", 0)
    assert calculator.task(config, "heldout", 0)
