"""A driver that was replaced writes nothing more among the run's files, told of it or not."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from lagoon.checkpoints import MANIFEST, UPDATES
from lagoon.events import CheckpointLogged
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from workers import checkpoints as checkpoints_module
from workers.claim import Claim, FencedOut
from workers.failures import RunFailed
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop


@pytest.mark.parametrize("newer", [(1, 3), (2, 1)])
def test_the_newest_driver_of_a_run_has_the_claim(tmp_path: Path, newer: tuple[int, int]) -> None:
    path = tmp_path / "r-a1" / "claim"
    older = Claim(path, 1, 2)
    older.check()  # nobody has claimed anything
    older.take()
    older.take()
    older.check()
    Claim(path, *newer).take()
    for refused in (older.take, older.check):
        with pytest.raises(FencedOut, match=f"attempt {newer[0]}, fencing token {newer[1]}"):
            refused()
    Claim(path, *newer).check()
    path.write_text("2")  # its machine died while it was written
    older.check()


def test_a_disk_that_takes_no_claim_costs_the_protection_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "r-a1").write_text("no folder")
    claim = Claim(tmp_path / "r-a1" / "claim", 1, 1)
    claim.take()
    assert "cannot be written" in caplog.text
    claim.check()


def test_a_file_system_without_locks_costs_the_protection_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("workers.claim.fcntl.flock", without_locks)
    claim = Claim(tmp_path / "claim", 1, 1)
    claim.take()
    claim.check()
    claim = Claim(tmp_path / "claim", 1, 1, lambda: True)
    with pytest.raises(FencedOut, match="no longer takes"):
        claim.check()


async def test_a_save_that_was_under_way_when_the_driver_was_fenced_out_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = asyncio.Event()
    context, sink = loop_context(
        grpo_config(checkpoint={"every_steps": 1}), [FakeGenerator(lambda *_: 1.0)], tmp_path
    )
    context.checkpoints.claim = Claim(tmp_path / "claim", 1, 1, fenced.is_set)
    described = checkpoints_module.described_files

    def fenced_meanwhile(folder: Path) -> Any:
        fenced.set()
        return described(folder)

    monkeypatch.setattr(checkpoints_module, "described_files", fenced_meanwhile)
    with pytest.raises(FencedOut):
        await PolicyGradientLoop(context, FakeTrainer()).run()
    assert not list(tmp_path.glob(f"*/{MANIFEST}"))
    assert not [event for event in sink.events if isinstance(event, CheckpointLogged)]


async def test_a_driver_that_was_replaced_unheard_neither_saves_nor_removes(tmp_path: Path) -> None:
    config = grpo_config(
        budget={"max_steps": 9},
        checkpoint={"every_steps": 1, "keep": 1},
        evaluation={"num_tasks": 1},
    )
    context, _ = loop_context(config, [FakeGenerator(lambda *_: 1.0)], tmp_path)
    path, trainer = tmp_path / "claim", FakeTrainer()
    context.checkpoints.claim = Claim(path, 1, 1)
    step = trainer.step

    async def replaced(*arguments: Any) -> Any:
        if context.progress.version == 2:
            Claim(path, 2, 1).take()
        return await step(*arguments)

    trainer.step = replaced  # type: ignore[method-assign]
    with pytest.raises(FencedOut):
        await PolicyGradientLoop(context, trainer).run()
    assert trainer.saved == [str(tmp_path / f"step-00000{n}") for n in (1, 2)]
    assert [each.name for each in tmp_path.glob("step-*")] == ["step-000002"]


async def test_a_save_that_fails_after_the_driver_was_replaced_leaves_the_newer_ones_files(
    tmp_path: Path,
) -> None:
    context, _ = loop_context(
        grpo_config(checkpoint={"every_steps": 1}), [FakeGenerator(lambda *_: 1.0)], tmp_path
    )
    context.checkpoints.claim = Claim(tmp_path / "claim", 1, 1)
    trainer = FakeTrainer()

    async def replaced(folder: str) -> None:
        Claim(tmp_path / "claim", 1, 2).take()
        (Path(folder) / MANIFEST).parent.mkdir(parents=True)
        (Path(folder) / MANIFEST).write_text("the newer driver's")
        raise RunFailed("The trainer failed.")

    trainer.save = replaced  # type: ignore[method-assign]
    with pytest.raises(FencedOut):
        await PolicyGradientLoop(context, trainer).run()
    assert (tmp_path / "step-000001" / MANIFEST).exists()


async def test_a_driver_that_was_replaced_adds_nothing_to_the_log_of_updates(
    tmp_path: Path,
) -> None:
    context, _ = loop_context(
        es_config(checkpoint={"every_steps": 3}), [FakeGenerator(lambda *_: 1.0)], tmp_path
    )
    context.checkpoints.claim = Claim(
        tmp_path / "claim", 1, 1, lambda: context.progress.version == 2
    )
    with pytest.raises(FencedOut):
        await EvolutionLoop(context).run()
    assert len((tmp_path / UPDATES).read_text().splitlines()) == 1
