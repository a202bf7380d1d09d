"""A checkpoint's announcement beside training: who waits for it, and who does not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.events import CheckpointLogged
from tests.workers.fakes import loop_context
from tests.workers.loops.invariants import UNFILTERED, overlapping
from tests.workers.streaming import Chance, StreamingGenerator, StreamingTrainer
from workers.checkpoints import Checkpoints, Written
from workers.claim import FencedOut
from workers.loops.policy_gradient import PolicyGradientLoop

announce = Checkpoints.announce


async def test_a_publish_waits_for_the_evaluation_and_not_for_the_checkpoint_to_be_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealing version 2 takes until version 3 is published."""
    published = asyncio.Event()

    async def slow(self: Checkpoints, written: Written, *given: Any, **named: Any) -> None:
        if written.state.version == 2 and not named["is_final"]:
            assert sink.values(m.HELDOUT_SUCCESS).get(2) is not None
            await published.wait()
        await announce(self, written, *given, **named)

    class Watched(StreamingGenerator):
        async def publish(self, version: int, weights: Any) -> str:
            if version == 3:
                assert sink.values(m.HELDOUT_SUCCESS).get(2) is not None
                published.set()
            return await super().publish(version, weights)

    monkeypatch.setattr(Checkpoints, "announce", slow)
    chance = Chance(3)
    context, sink = loop_context(overlapping(UNFILTERED), [Watched(chance)], tmp_path)
    async with asyncio.timeout(30):
        assert await PolicyGradientLoop(context, StreamingTrainer(chance)).run() == "finished"
    saved = [event.step for event in sink.events if isinstance(event, CheckpointLogged)]
    assert saved == [2, 4, 6, 6]


@pytest.mark.parametrize("last", [4, 6])
async def test_the_next_save_and_the_end_of_the_run_wait_for_the_announcement_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    seen: list[tuple[str, int]] = []

    async def slow(self: Checkpoints, written: Written, *given: Any, **named: Any) -> None:
        for _ in range(500):
            await asyncio.sleep(0)
        await announce(self, written, *given, **named)
        seen.append(("announced", written.state.version))

    class Noting(StreamingTrainer):
        async def save(self, folder: str) -> None:
            seen.append(("saved", len(self.batches)))
            await super().save(folder)

    monkeypatch.setattr(Checkpoints, "announce", slow)
    chance = Chance(0)
    config = overlapping(UNFILTERED, steps=last)
    context, _ = loop_context(config, [StreamingGenerator(chance)], tmp_path)
    await PolicyGradientLoop(context, Noting(chance)).run()
    steps = [*range(2, last + 1, 2), last]
    assert seen == [each for step in steps for each in (("saved", step), ("announced", step))]


async def test_an_announcement_that_was_refused_ends_the_run_at_the_next_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Checkpoints, *given: Any, **named: Any) -> None:
        raise FencedOut("Another driver has taken the run over.")

    monkeypatch.setattr(Checkpoints, "announce", refused)
    chance = Chance(0)
    config = overlapping(UNFILTERED, steps=50)
    context, _ = loop_context(config, [StreamingGenerator(chance)], tmp_path)
    with pytest.raises(FencedOut):
        await PolicyGradientLoop(context, StreamingTrainer(chance)).run()
    assert context.progress.version == 3
