"""An engine that is held samples nothing, whatever becomes of its weights; vLLM is a stand-in."""

import asyncio
from typing import Any

import pytest

from workers.engine import EngineFailed, VLLMEngine


class Core:
    """vLLM's engine, as far as pauses and weights go."""

    def __init__(self) -> None:
        self.engine_core, self.errored = self, False
        self.paused = False
        self.calls: list[Any] = []
        self.breaks = False

    async def pause_scheduler_async(self, *, mode: str, clear_cache: bool) -> None:
        if self.breaks:
            raise ConnectionError("gone")
        self.calls.append((mode, clear_cache))
        self.paused = True

    async def resume_generation(self) -> None:
        self.calls.append("resume")
        self.paused = False

    async def is_paused(self) -> bool:
        return self.paused

    async def start_weight_update(self) -> None:
        assert self.paused

    async def update_weights(self, request: Any) -> None:
        assert self.paused

    async def finish_weight_update(self, version: str | None) -> None:
        assert self.paused


def engine_of(core: Core) -> Any:
    engine: Any = VLLMEngine.__new__(VLLMEngine)
    engine._engine, engine._failure, engine._is_held = core, None, False
    engine._changing_weights, engine._num_loads = asyncio.Lock(), 0
    engine._pause_mode, engine._update_request = "keep", dict
    return engine


async def test_holding_keeps_the_requests_and_their_cache_and_is_said_once() -> None:
    core = Core()
    engine = engine_of(core)
    for is_paused in (False, True, True, False, False):
        await engine.hold(is_paused=is_paused)
        assert core.paused == is_paused
    assert core.calls == [("keep", False), "resume"]


async def test_weights_that_are_loaded_meanwhile_do_not_end_a_pause() -> None:
    core = Core()
    engine = engine_of(core)
    await engine.hold(is_paused=True)
    await engine._load({}, 3)
    assert core.paused
    await engine.hold(is_paused=False)
    await engine._load({}, 4)
    assert not core.paused


async def test_an_engine_whose_pause_fails_is_not_used_any_more() -> None:
    core = Core()
    core.breaks = True
    engine = engine_of(core)
    with pytest.raises(EngineFailed, match="pausing the engine, or its end, failed: gone"):
        await engine.hold(is_paused=True)
    with pytest.raises(EngineFailed):
        engine.check()
