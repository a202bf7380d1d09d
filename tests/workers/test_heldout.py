"""Evaluation plays as many different held-out tasks as it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from lagoon.config import RunConfig
from lagoon.environments import EnvironmentConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from lagoon.trajectory import Split
from tests.builders import grpo_config
from tests.workers.fakes import FakeGenerator, loop_context
from workers.environments import Message, Observation, make_environment, num_tasks
from workers.environments.base import finished
from workers.failures import RunFailed
from workers.heldout import heldout_indices
from workers.loops.context import supervised

PRESETS = sorted((Path(__file__).resolve().parents[2] / "presets").glob("*.yaml"))
SMALL = Calculator(num_operations=1)
"""It has 243 expressions, of which about a quarter are held out."""


def shown(config: EnvironmentConfig, split: Split, index: int) -> tuple[Message, ...]:
    return finished(make_environment(config, split, index).start())


@dataclass(frozen=True)
class Word:
    """A task that is one word."""

    text: str

    async def start(self) -> tuple[Message, ...]:
        return (Message("user", self.text),)

    async def step(self, text: str) -> Observation:
        return Observation(done=True)


async def test_the_chosen_tasks_differ_where_draws_repeat() -> None:
    first = [shown(SMALL, "heldout", index) for index in range(50)]
    assert len(set(first)) < 50
    chosen = await heldout_indices(SMALL, 50, None)
    assert len({shown(SMALL, "heldout", index) for index in chosen}) == 50


async def test_the_chosen_tasks_never_occur_in_training() -> None:
    chosen = {shown(SMALL, "heldout", index) for index in await heldout_indices(SMALL, 50, None)}
    trained = {shown(SMALL, "train", index) for index in range(3000)}
    assert not chosen & trained


@pytest.mark.parametrize("config", [SMALL, Sudoku4(num_blanks=1)], ids=["calculator", "sudoku4"])
async def test_the_choice_depends_on_the_environment_alone(config: EnvironmentConfig) -> None:
    chosen = await heldout_indices(config, 40, None)
    assert chosen == await heldout_indices(config, 40, None)
    assert chosen == sorted(chosen)
    assert chosen[:10] == await heldout_indices(config, 10, None)


async def test_all_tasks_of_a_small_split_are_found() -> None:
    heldout = {shown(SMALL, "heldout", index) for index in range(3000)}
    assert len(await heldout_indices(SMALL, len(heldout), None)) == len(heldout)


async def test_too_few_different_tasks_end_the_run_with_both_numbers() -> None:
    heldout = {shown(SMALL, "heldout", index) for index in range(3000)}
    with pytest.raises(RunFailed, match=rf"asks for 256 .* has only {len(heldout)} different"):
        await heldout_indices(SMALL, 256, None)


async def test_tasks_that_settings_were_chosen_on_are_left_out() -> None:
    first, others = [await heldout_indices(SMALL, 5, None, skip=skip) for skip in (0, 5)]
    assert first + others == await heldout_indices(SMALL, 10, None)
    with pytest.raises(RunFailed, match=r"256 held-out tasks after the first 5 .* ask for at most"):
        await heldout_indices(SMALL, 256, None, skip=5)


async def test_a_split_that_ends_is_searched_to_its_end() -> None:
    words = ["one", "two", "one", "three"]

    def environments(config: EnvironmentConfig, split: Split, index: int) -> Word:
        assert split == "heldout"
        return Word(words[index])

    assert await heldout_indices(SMALL, 3, len(words), environments) == [0, 1, 3]
    with pytest.raises(RunFailed, match=r"asks for 4 .* has only 3 different"):
        await heldout_indices(SMALL, 4, len(words), environments)


async def test_an_environment_that_raises_ends_the_run_with_the_cause() -> None:
    def environments(config: EnvironmentConfig, split: Split, index: int) -> Word:
        raise LookupError("the word list is gone")

    with pytest.raises(RunFailed, match="raised an error: LookupError: the word list") as raised:
        await heldout_indices(SMALL, 1, None, environments)
    assert "Traceback" in raised.value.details


async def test_an_evaluation_plays_the_chosen_tasks(tmp_path: Path) -> None:
    generator = FakeGenerator(lambda request, generator: 1.0)
    context, _sink = loop_context(grpo_config(), [generator], tmp_path)
    context.generators.trust([0])
    context = replace(context, heldout=[3, 7])
    await supervised(context.evaluate(), [context.generators.pump(0)])
    assert [prompt for _, _, prompt, _ in generator.calls] == ["heldout/3", "heldout/7"]


async def test_a_version_is_evaluated_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    generator = FakeGenerator(lambda request, generator: 1.0)
    context, _sink = loop_context(grpo_config(), [generator], tmp_path)
    context.generators.trust([0])

    async def ask_three_times() -> None:
        await context.evaluate()
        await context.evaluate()
        context.progress.version += 1
        await context.evaluate()

    await supervised(ask_three_times(), [context.generators.pump(0)])
    assert len(generator.calls) == 2 * len(context.heldout)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
async def test_every_preset_has_the_held_out_tasks_that_it_asks_for(path: Path) -> None:
    config = RunConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    environment, wanted = config.environment, config.evaluation.num_tasks
    if path.stem.endswith("reasoning-gym"):
        pytest.importorskip("reasoning_gym")
    chosen = await heldout_indices(environment, wanted, num_tasks(environment, "heldout"))
    assert len({shown(environment, "heldout", index) for index in chosen}) == wanted
