"""A checkpoint that cannot be written: what is left, what is said, and how the run goes on."""

from pathlib import Path
from typing import Any

import pytest

from lagoon.checkpoints import read_manifest
from lagoon.config import RunConfig
from lagoon.events import CheckpointLogged, StatusLogged
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, ListSink, loop_context
from workers.checkpoints import NotSaved
from workers.failures import RunFailed, failure
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.models.writing import partials

FULL = "No space left on device"


class Disk:
    """Takes nothing at the saves that are told: half of a checkpoint is on it then."""

    def __init__(self, full_at: set[str], error: Exception | None = None) -> None:
        self.full_at, self.error = full_at, error or RunFailed(f"The trainer failed: {FULL}")
        self.tried: list[str] = []

    def saver(self, save: Any) -> Any:
        async def saved(folder: str) -> None:
            path = Path(folder)
            self.tried.append(path.name)
            await save(folder)
            if path.name in self.full_at:
                weights, partial = partials(path)
                weights.write_text("half of the weights")
                partial.mkdir()
                raise self.error

        return saved


async def trained(config: RunConfig, folder: Path, disk: Disk) -> tuple[str, ListSink]:
    generator, trainer = FakeGenerator(lambda request, _: float(request.index % 2)), FakeTrainer()
    generator.save = disk.saver(generator.save)  # type: ignore[method-assign]
    trainer.save = disk.saver(trainer.save)  # type: ignore[method-assign]
    context, sink = loop_context(config, [generator], folder)
    loop = (
        EvolutionLoop(context) if config.trainer is None else PolicyGradientLoop(context, trainer)
    )
    return await loop.run(), sink


def said(sink: ListSink) -> list[str]:
    return [
        e.message for e in sink.events if isinstance(e, StatusLogged) and "weights of" in e.message
    ]


@pytest.mark.parametrize("make", [grpo_config, es_config])
async def test_a_run_goes_on_without_a_checkpoint_that_the_disk_did_not_take(
    tmp_path: Path, make: Any
) -> None:
    config = make(budget={"max_steps": 4}, checkpoint={"every_steps": 1, "keep": 9})
    outcome, sink = await trained(config, tmp_path, Disk({"step-000002", "step-000003"}))
    assert outcome == "finished"
    announced = [event.step for event in sink.events if isinstance(event, CheckpointLogged)]
    assert announced == [1, 4, 4]
    assert [path.name for path in sorted(tmp_path.iterdir()) if path.is_dir()] == [
        "final",
        "step-000001",
        "step-000004",
    ]
    first, second, again = said(sink)
    for words in ("step 2 could not be saved", FULL, "tries again"):
        assert words in first
    assert "step 3" in second
    assert "step 4 were saved" in again


async def test_last_weights_that_cannot_be_saved_end_the_run_with_the_cause(tmp_path: Path) -> None:
    config = grpo_config(budget={"max_steps": 3}, checkpoint={"every_steps": 2})
    disk = Disk({"final", "step-000003"}, OSError(28, FULL))
    with pytest.raises(NotSaved, match=rf"step 3 could not be saved: .*{FULL}.* are safe"):
        await trained(config, tmp_path, disk)
    assert disk.tried == ["step-000002", "final", "step-000003"]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]
    assert read_manifest(tmp_path / "step-000002").step == 2


async def test_an_actor_that_dies_over_a_save_ends_the_attempt_as_a_death_does(
    tmp_path: Path,
) -> None:
    class Died(RuntimeError):
        is_transient = True

    disk = Disk({"step-000001"}, failure("The trainer failed", Died("its process was killed")))
    with pytest.raises(RunFailed, match="was killed") as caught:
        await trained(grpo_config(checkpoint={"every_steps": 1}), tmp_path, disk)
    assert caught.value.is_transient
    assert not isinstance(caught.value, NotSaved)


async def test_an_evolution_run_without_room_for_its_log_ends_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, update: Any) -> None:
        raise OSError(28, FULL)

    monkeypatch.setattr("workers.loops.evolution.append_update", full)
    with pytest.raises(RunFailed, match=rf"Update 1 could not be written .*{FULL}.* go on from"):
        await trained(es_config(), tmp_path, Disk(set()))


async def test_a_checkpoint_goes_when_the_announcement_of_the_newer_one_outlives_a_kill(
    tmp_path: Path,
) -> None:
    """Else the platform would know of the removed one alone, and the run could not go on."""
    config = grpo_config(
        budget={"max_steps": 3},
        checkpoint={"every_steps": 1, "keep": 1},
        evaluation={"every_steps": 9},
    )
    generator = FakeGenerator(lambda request, _: float(request.index % 2))
    context, sink = loop_context(config, [generator], tmp_path)
    there: list[list[str]] = []

    def flush() -> None:
        newest = sink.events[-1]
        assert isinstance(newest, CheckpointLogged)
        there.append([Path(path).name for path in newest.dropped if Path(path).is_dir()])

    sink.flush = flush  # type: ignore[method-assign]
    await PolicyGradientLoop(context, FakeTrainer()).run()
    assert there[-1] == ["step-000002"]
    assert not (tmp_path / "step-000002").exists()
