import math
from random import Random
from statistics import mean

import pytest

from lagoon.environments.calculator import Calculator
from lagoon.trajectory import Split
from workers.environments import Message, Observation, demonstrate, make_environment
from workers.environments.calculator import (
    MAX_VALUE,
    CalculatorEnvironment,
    calculate,
    reductions,
    task,
)

CONFIG = Calculator(mean_wait_seconds=0)


def environment(expression: str, config: Calculator = CONFIG) -> CalculatorEnvironment:
    return CalculatorEnvironment(config, expression, Random(0))


async def replies(world: CalculatorEnvironment, *turns: str) -> list[Observation]:
    return [await world.step(turn) for turn in turns]


async def test_calls_are_answered_and_the_right_answer_pays() -> None:
    world = environment("7+2*3")
    assert await world.start() == (Message("user", "7+2*3"),)
    product, total, end = await replies(world, "calc:2*3", "calc:7+6", "answer:13")
    assert (product.messages, product.reward) == ((Message("tool", "6"),), 0.0)
    assert total.messages == (Message("tool", "13"),)
    assert end == Observation(reward=1.0, done=True, success=True)


async def test_a_wrong_answer_ends_the_episode_without_pay() -> None:
    (end,) = await replies(environment("7+2*3"), "answer:27")
    assert end == Observation(reward=0.0, done=True, success=False)


@pytest.mark.parametrize(
    "turn", ["", "hello", "calc:", "calc:7", "calc:7+", "answer:", "calc:1+2+3"]
)
async def test_a_malformed_turn_is_a_tool_error_and_the_episode_goes_on(turn: str) -> None:
    world = environment("7+2*3")
    refused, end = await replies(world, turn, "answer:13")
    assert refused.messages == (Message("tool", "error"),)
    assert refused.tool_error == "neither a call nor an answer"
    assert not refused.done
    assert end.success


@pytest.mark.parametrize("call", ["calc:4/0", "calc:7/2"])
async def test_a_division_that_fails_is_a_tool_error(call: str) -> None:
    (refused,) = await replies(environment("7+2"), call)
    assert refused.messages == (Message("tool", "error"),)
    assert refused.tool_error


def test_the_tool_divides_only_without_a_rest() -> None:
    assert calculate(-8, "/", 2) == -4
    with pytest.raises(ValueError, match="no multiple"):
        calculate(7, "/", 2)


@pytest.mark.parametrize("index", range(200))
def test_reductions_agree_with_the_rules_of_arithmetic(index: int) -> None:
    expression = task(Calculator(num_operations=4, max_turns=5), "train", index)
    calls = reductions(expression)
    assert len(calls) == 4
    assert calls[-1][1] == eval(expression)  # the interpreter is an independent oracle
    assert all(abs(value) <= MAX_VALUE for _, value in calls)


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


async def test_an_instruction_comes_first_as_the_system() -> None:
    config = Calculator(instruction="Use the tool.")
    opening = await make_environment(config, "train", 0).start()
    assert [message.role for message in opening] == ["system", "user"]


async def waits(config: Calculator, attempt: int, count: int) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    world = CalculatorEnvironment(config, "1+1", Random(f"waits {attempt}"), sleep)
    told = [(await world.step("calc:1+1")).wait_seconds for _ in range(count)]
    assert [seconds for seconds in told if seconds] == slept
    return slept


async def test_waits_are_lognormal_with_the_configured_mean_and_spread() -> None:
    config = Calculator.model_construct(
        mean_wait_seconds=0.3, wait_sigma=0.8, max_turns=10**6, instruction=""
    )
    drawn = await waits(config, 0, 20_000)
    assert mean(drawn) == pytest.approx(0.3, rel=0.05)
    logs = [math.log(wait) for wait in drawn]
    spread = math.sqrt(mean(log**2 for log in logs) - mean(logs) ** 2)
    assert spread == pytest.approx(0.8, rel=0.03)


async def test_waits_are_reproducible_and_differ_between_attempts() -> None:
    config = Calculator(max_turns=64)
    assert await waits(config, 1, 5) == await waits(config, 1, 5)
    assert await waits(config, 1, 5) != await waits(config, 2, 5)


async def test_a_mean_of_zero_never_sleeps() -> None:
    assert await waits(Calculator(mean_wait_seconds=0, max_turns=64), 0, 3) == []


async def test_held_out_episodes_wait_unless_told_not_to() -> None:
    quick = Calculator(mean_wait_seconds=60, heldout_waits=False)
    told = await make_environment(quick, "heldout", 0).step("calc:1+1")
    assert told.wait_seconds == 0
