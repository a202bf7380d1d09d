"""A calculator that answers late: the model reduces an expression call by call.

::

    user       7+2*3-4
    assistant  calc:2*3        (a wait, drawn from a lognormal law and really waited)
    tool       6
    assistant  calc:7+6
    tool       13
    assistant  calc:13-4
    tool       9
    assistant  answer:9        reward 1, or 0 for any other number
"""

import asyncio
import math
import re
from random import Random

from lagoon.environments.calculator import Calculator
from lagoon.trajectory import Split
from workers.environments.base import Environment, Message, Observation, Sleep, first_in_split

CALL = re.compile(r"calc:\s*(-?\d{1,9})\s*([-+*/])\s*(-?\d{1,9})\s*")
ANSWER = re.compile(r"answer:\s*(-?\d{1,18})\s*")
MAX_VALUE = 999
"""Largest absolute value that a solution passes through: turns stay short."""


def calculate(left: int, operator: str, right: int) -> int:
    """The tool itself, on integers.

    Raises ``ZeroDivisionError`` for a division by zero and ``ValueError`` for one with a rest.
    """
    if operator == "/":
        quotient, rest = divmod(left, right)
        if rest:
            raise ValueError(f"{left} is no multiple of {right}")
        return quotient
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def reductions(expression: str) -> list[tuple[str, int]]:
    """The calls that evaluate an expression, with their results: products first, from the left."""
    operands = [int(text) for text in re.split(r"[-+*]", expression)]
    operators = re.findall(r"[-+*]", expression)
    calls = []
    while operators:
        at = operators.index("*") if "*" in operators else 0
        left, right, operator = operands[at], operands.pop(at + 1), operators.pop(at)
        operands[at] = calculate(left, operator, right)
        calls.append((f"{left}{operator}{right}", operands[at]))
    return calls


def task(config: Calculator, split: Split, index: int) -> str:
    """The expression of a task. Raises ``NoSuchTask``."""
    random = Random(f"calculator {config.num_operations} {config.max_operand} {split} {index}")

    def draw() -> str:
        while True:
            expression = str(random.randint(1, config.max_operand))
            for _ in range(config.num_operations):
                expression += random.choice("+-*") + str(random.randint(1, config.max_operand))
            if all(abs(value) <= MAX_VALUE for _, value in reductions(expression)):
                return expression

    return first_in_split(draw, str, split)


class CalculatorEnvironment:
    """One expression. ``sleep`` is awaited with the seconds of every wait."""

    def __init__(
        self, config: Calculator, expression: str, waits: Random, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._config = config
        self._expression = expression
        self._waits = waits
        self._sleep = sleep

    async def start(self) -> tuple[Message, ...]:
        """The instruction, if any, and the expression."""
        instruction = self._config.instruction
        system = (Message("system", instruction),) if instruction else ()
        return (*system, Message("user", self._expression))

    async def step(self, text: str) -> Observation:
        """Judge an answer, or let the calculator reply to anything else."""
        answer = ANSWER.fullmatch(text.strip())
        if answer:
            is_right = int(answer[1]) == reductions(self._expression)[-1][1]
            return Observation(reward=float(is_right), done=True, success=is_right)
        wait_seconds = self._draw_wait()
        if wait_seconds:
            await self._sleep(wait_seconds)
        try:
            result, error = self._call(text), None
        except (ValueError, ZeroDivisionError) as exception:
            result, error = "error", str(exception)
        return Observation((Message("tool", result),), tool_error=error, wait_seconds=wait_seconds)

    def _call(self, text: str) -> str:
        call = CALL.fullmatch(text.strip())
        if not call:
            raise ValueError("neither a call nor an answer")
        return str(calculate(int(call[1]), call[2], int(call[3])))

    def _draw_wait(self) -> float:
        mean, sigma = self._config.mean_wait_seconds, self._config.wait_sigma
        if mean == 0:
            return 0.0
        return self._waits.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)


def make(config: Calculator, split: Split, index: int, attempt: int) -> Environment:
    """One episode; the waits differ between the attempts at one task."""
    waits = Random(f"calculator waits {split} {index} {attempt}")
    if split == "heldout" and not config.heldout_waits:
        config = config.model_copy(update={"mean_wait_seconds": 0.0})
    return CalculatorEnvironment(config, task(config, split, index), waits)


def num_tasks(config: Calculator, split: Split) -> None:
    """Endless."""


def demonstrate(config: Calculator, split: Split, index: int) -> list[Message]:
    """Every call of the shortest solution, then the answer."""
    expression = task(config, split, index)
    messages = [Message("user", expression)]
    for call, value in reductions(expression):
        messages += [Message("assistant", f"calc:{call}"), Message("tool", str(value))]
    return [*messages, Message("assistant", f"answer:{messages[-1].text}")]
