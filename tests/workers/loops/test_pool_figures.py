"""What a step reports of its pool: how much was ready at the draw, and what the bound allows."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.controls import Change
from lagoon.ledger import Ledger
from tests.builders import grpo_config
from tests.workers.fakes import FakeGenerator, loop_context
from tests.workers.streaming import Chance, ran
from workers.loops.admission import Admission
from workers.loops.pool import Pool
from workers.rollout import EpisodeRequest

BATCH = {"num_prompts": 2, "group_size": 2}


async def played(method: dict[str, Any], folder: Path, seed: int = 0) -> Any:
    config = grpo_config(
        method=method | BATCH, rollout={"max_concurrent": 24}, budget={"max_steps": 6}
    )
    return await ran(config, folder, Chance(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bound", [0, 1, 3])
async def test_what_is_in_the_pool_never_exceeds_what_the_bound_allows(
    tmp_path: Path, bound: int, seed: int
) -> None:
    sink = (await played({"name": "async_grpo", "max_staleness": bound}, tmp_path, seed)).sink
    assert set(sink.values(m.POOL_LIMIT).values()) == {(bound + 1) * 2}
    for step, limit in sink.values(m.POOL_LIMIT).items():
        places = (m.POOL_GENERATING, m.POOL_READY, m.POOL_RESERVED)
        assert sum(sink.values(place)[step] for place in places) <= limit


async def test_without_a_bound_no_limit_is_reported(tmp_path: Path) -> None:
    assert not (await played({"name": "async_grpo"}, tmp_path)).sink.values(m.POOL_LIMIT)


async def test_what_was_ready_at_the_draw_is_what_is_trained_on_given_up_and_left(
    tmp_path: Path,
) -> None:
    method = {"name": "pace", "target": 3, "smoothing": 0}
    sink = (await played(method, tmp_path)).sink
    offered = sink.values(m.POOL_OFFERED)
    rejected: dict[int, float] = {}
    for step, point in sink.points(m.REJECTED):
        rejected[step] = rejected.get(step, 0) + point.value
    excess = {s: p.value for s, p in sink.points(m.REJECTION_RATE) if p.labels["kind"] == "raw"}
    assert list(offered) == list(range(1, 7))
    assert sum(rejected.values()) > 0
    for step, ready in offered.items():
        assert ready >= 2 + rejected[step]
        assert excess[step] == pytest.approx(max(0, ready - 3) / ready)


async def test_the_books_of_a_step_are_those_after_its_update_with_its_batch_still_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Ledger] = []
    updated: list[Ledger] = []
    draw, train = Pool.draw, Pool.train

    async def noted_draw(pool: Pool, *given: Any) -> Any:
        groups = await draw(pool, *given)
        if groups:
            drawn.append(pool.ledger)
        return groups

    def noted_train(pool: Pool, *given: Any) -> None:
        updated.append(pool.ledger)
        train(pool, *given)

    monkeypatch.setattr(Pool, "draw", noted_draw)
    monkeypatch.setattr(Pool, "train", noted_train)
    sink = (await played({"name": "async_grpo"}, tmp_path)).sink
    assert list(sink.values(m.POOL_READY).values()) == [books.ready for books in updated]
    assert list(sink.values(m.LEDGER_ISSUED).values()) == [books.issued for books in updated]
    assert set(sink.values(m.POOL_RESERVED).values()) == {2}
    assert [books.issued for books in drawn] != [books.issued for books in updated]
    assert "at the end of the step's update" in " ".join(m.LEDGER_ISSUED.description.split())


async def test_a_step_is_charged_with_no_more_back_pressure_than_it_lasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    tell = Admission.backpressure_seconds

    def told(admission: Admission) -> float:
        asked.append(tell(admission))
        return asked[-1]

    monkeypatch.setattr(Admission, "backpressure_seconds", told)
    sink = (await played({"name": "async_grpo", "max_staleness": 1}, tmp_path)).sink
    held_back, steps = sink.values(m.BACKPRESSURE_SECONDS), sink.values(m.STEP_SECONDS)
    assert max(held_back.values()) > 0
    # The clock of this test moves with every reading: at most one of them is not the step's own.
    assert all(held_back[step] <= steps[step] + 1 for step in steps)
    assert sum(asked) > sum(held_back.values())


class Endless(FakeGenerator):
    """Plays and plays."""

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        pass


async def test_the_bound_holds_nobody_back_for_whom_there_is_no_place(tmp_path: Path) -> None:
    method = {"name": "async_grpo", "max_staleness": 1}
    config = grpo_config(method=method | BATCH, rollout={"max_concurrent": 24})
    context, _ = loop_context(config, [Endless(lambda *_: 1.0)], tmp_path)
    changed = asyncio.Event()
    admission = Admission(context, Pool(context.begins), changed)
    admission.version = 0
    running = asyncio.ensure_future(admission.run())

    async def seconds_held_back() -> float:
        changed.set()
        for _ in range(20):
            await asyncio.sleep(0)
        admission.backpressure_seconds()  # from here on
        return admission.backpressure_seconds()

    assert await seconds_held_back() > 0
    assert len(admission.in_flight) == 4  # two batches: what the bound allows
    fewer = Change(number=1, settings={"rollout.max_concurrent": 8})  # as many as are played
    context.controls.deliver([fewer])
    context.controls.take()
    assert await seconds_held_back() == 0
    running.cancel()
    await admission.give_up()
