import pytest

from tests.workers.fakes import FakeGenerator
from workers.failures import RunFailed
from workers.handles import GeneratorHandle
from workers.replacing import Replacements


async def test_generators_are_replaced_until_that_brings_the_run_no_further() -> None:
    started: list[int] = []
    version = 3

    async def start(generator: int) -> GeneratorHandle:
        started.append(generator)
        return FakeGenerator(lambda *_: 0.0)

    replacement = Replacements(start, 2, lambda: version)
    await replacement(0)
    await replacement(1)
    version = 4
    await replacement(1)
    await replacement(0)
    with pytest.raises(RunFailed, match="Generator 0 died, and 2 generators that") as caught:
        await replacement(0)
    assert caught.value.is_transient
    assert started == [0, 1, 1, 0]


async def test_where_nothing_is_started_again_nobody_is_replaced() -> None:
    async def start(generator: int) -> GeneratorHandle:
        raise AssertionError("it was not to be started")

    with pytest.raises(RunFailed):
        await Replacements(start, 0, lambda: 0)(0)
