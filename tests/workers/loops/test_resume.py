"""Runs that are killed at any moment and go on: nothing is trained twice, nothing is skipped."""

import asyncio
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lagoon.checkpoints import UPDATES, DamagedCheckpoint, read_manifest
from lagoon.events import CheckpointLogged
from lagoon.ledger import Ledger
from tests.builders import es_config, grpo_config
from tests.workers.fakes import FakeGenerator, FakeTrainer, at_once, loop_context
from workers.checkpoints import FINAL
from workers.failures import RunFailed
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop
from workers.loops.state import LoopState, read_state
from workers.loops.updates import Update, append_update, updates_after
from workers.resuming import Candidates, candidates_in, restored
from workers.rollout import EpisodeRequest

SMALL: dict[str, Any] = {"num_prompts": 2, "group_size": 2}


class Killed(BaseException):
    """What no handler of the product catches: the process is gone."""


@dataclass
class Fuse:
    """Kills at the given number of calls, whoever makes them."""

    calls: int
    made: int = 0

    def burn(self) -> None:
        self.made += 1
        if self.made == self.calls:
            raise Killed


@dataclass
class Trainer(FakeTrainer):
    """Remembers which prompts it trained on, by the version that this made."""

    fuse: Fuse
    version: int
    trained: dict[int, list[int]] = field(default_factory=dict)
    stale: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def step(self, samples: Any, learning_rate: float) -> Any:
        await asyncio.sleep(0)
        self.fuse.burn()
        ids = [sample.trajectory.trajectory_id for sample in samples]
        self.stale += [
            self.version - v for s in samples for v in s.trajectory.versions if v is not None
        ]
        self.version += 1
        self.trained[self.version] = [int(id.split("/")[1]) for id in ids]
        self.fuse.burn()
        return await super().step(samples, learning_rate)

    async def save(self, folder: str) -> None:
        await asyncio.sleep(0)
        self.fuse.burn()
        await super().save(folder)
        self.fuse.burn()


class Generator(FakeGenerator):
    """Answers in an order and at moments of its own."""

    def __init__(self, fuse: Fuse, version: int, order: random.Random) -> None:
        super().__init__(lambda request, _: float(request.trajectory_id.endswith("0")))
        self.fuse, self.version, self.order = fuse, version, order

    async def collect(self) -> Any:
        for _ in range(self.order.randrange(4)):
            await asyncio.sleep(0)
        found = [await self._finished.get()]
        self.fuse.burn()
        return found

    async def publish(self, version: int, weights: Any) -> str:
        self.fuse.burn()
        return await super().publish(version, weights)


@pytest.mark.parametrize(
    ("max_staleness", "seed"),
    [(bound, seed) for bound in (0, 2) for seed in range(15)] + [(None, seed) for seed in range(6)],
)
async def test_after_any_kills_every_prompt_is_trained_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, max_staleness: int | None
) -> None:
    monkeypatch.setattr("workers.checkpoints.asyncio.to_thread", at_once)
    order = random.Random(seed)
    config = grpo_config(
        method=SMALL | {"name": "async_grpo", "max_staleness": max_staleness},
        rollout={"max_concurrent": 8},
        budget={"max_steps": 12},
        checkpoint={"every_steps": 2},
    )
    most_calls = 120 if max_staleness is not None else 400  # its generators play much more
    candidates, lineage = Candidates(), list[tuple[int, Trainer]]()
    for number in range(100):
        begins = restored(config, candidates)
        fuse = Fuse(order.randrange(1, most_calls))
        trainer = Trainer(fuse, begins.state.version)
        generators = [Generator(fuse, begins.state.version, order) for _ in range(2)]
        context, _ = loop_context(config, generators, tmp_path / str(number), begins)
        lineage.append((begins.state.version, trainer))
        loop = PolicyGradientLoop(context, trainer)
        try:
            assert await loop.run() == "finished"
            break
        except Killed:
            earlier = [candidates_in_attempt(tmp_path / str(n)) for n in range(number, -1, -1)]
            candidates = Candidates(tuple(path for found in earlier for path in found))
    assert len(lineage) > 1 or fuse.made < fuse.calls
    surviving: dict[int, list[int]] = {}
    for begins_at, trainer in lineage:
        surviving = {v: p for v, p in surviving.items() if v <= begins_at} | trainer.trained
        if max_staleness is not None:
            assert max(trainer.stale, default=0) <= max_staleness
    assert sorted(surviving) == list(range(1, 13))
    trained = [position for version in surviving.values() for position in set(version)]
    assert len(trained) == len(set(trained)) == 12 * 2
    state = read_state(tmp_path / str(number) / FINAL)
    waiting = [int(group.trajectories[0].trajectory_id.split("/")[1]) for group in state.pool]
    assert sorted([*trained, *waiting, *state.in_flight]) == list(range(state.ledger.issued))
    assert state.ledger.trained == 24
    assert state.ledger.is_balanced


def candidates_in_attempt(folder: Path) -> list[Path]:
    """The whole checkpoints of one attempt, newest first."""
    found = []
    for path in folder.glob("*"):
        try:
            found.append((read_manifest(path).step, path))
        except DamagedCheckpoint:
            continue
    return [path for _, path in sorted(found, reverse=True)]


class Member(FakeGenerator):
    """A generator of an evolution run whose weights are a number that its updates change."""

    def __init__(self, fuse: Fuse, version: int, checkpoint: Path | None) -> None:
        super().__init__(lambda request, me: float((me.perturbed_with or 0) % 7))
        self.fuse, self.version = fuse, version
        if checkpoint is not None:
            self.checksum = (checkpoint / "weights").read_text()

    async def update(self, *arguments: Any) -> Any:
        self.fuse.burn()
        report = await super().update(*arguments)
        self.fuse.burn()
        return report

    async def perturb(self, *arguments: Any) -> None:
        self.fuse.burn()
        await super().perturb(*arguments)

    async def save(self, folder: str) -> None:
        self.fuse.burn()
        await super().save(folder)
        self.fuse.burn()


async def evolve(folder: Path, order: random.Random | None) -> tuple[str, int]:
    """A run that is killed at random moments: its last weights, and how many attempts it took."""
    config = es_config(budget={"max_steps": 9}, checkpoint={"every_steps": 4})
    candidates = Candidates()
    for number in range(100):
        begins = restored(config, candidates)
        fuse = Fuse(order.randrange(1, 60) if order else 10**9)
        generators = [Member(fuse, begins.state.version, begins.folder) for _ in range(2)]
        context, _ = loop_context(config, generators, folder / str(number), begins)
        loop = EvolutionLoop(context, begins.updates)
        try:
            assert await loop.run() == "finished"
            return generators[0].checksum, number + 1
        except Killed:
            before = [folder / str(n) for n in range(number, -1, -1)]
            candidates = Candidates(
                tuple(path for each in before for path in candidates_in_attempt(each)),
                tuple(each / UPDATES for each in before),
            )
    raise AssertionError("it never ended")


@pytest.mark.parametrize("seed", range(15))
async def test_an_evolution_run_that_is_killed_ends_with_the_weights_of_one_that_is_not(
    tmp_path: Path, seed: int
) -> None:
    undisturbed, _ = await evolve(tmp_path / "undisturbed", None)
    killed, attempts = await evolve(tmp_path / "killed", random.Random(seed))
    assert killed == undisturbed
    assert attempts > 1


def update(version: int, checksum: str) -> Update:
    state = LoopState(version, -1, 0.0, 0, 0, Ledger())
    return Update(state, (1,), (0.5,), (1.0,), 0.1, 0.1, checksum, (), {})


def test_a_replay_that_was_cut_short_goes_on_in_the_log_before_it(tmp_path: Path) -> None:
    newer, other, older = (tmp_path / name for name in ("newer", "other", "older"))
    for version in (1, 2, 3, 4):
        append_update(older, update(version, f"w{version}"))
        append_update(other, update(version, f"superseded {version}"))
    for version in (1, 2):
        append_update(newer, update(version, f"w{version}"))
    found = updates_after([newer, other, older], 0)
    assert [each.checksum for each in found] == ["w1", "w2", "w3", "w4"]
    assert [each.checksum for each in updates_after([newer, other], 0)] == ["w1", "w2"]


async def test_the_time_of_logged_updates_counts_against_the_budget(tmp_path: Path) -> None:
    config = es_config(budget={"max_steps": 4})
    fuse = Fuse(10**9)
    context, _ = loop_context(config, [Member(fuse, 0, None)], tmp_path / "a")
    await EvolutionLoop(context).run()
    longer = es_config(budget={"max_steps": 5})
    begins = restored(longer, Candidates((), (tmp_path / "a" / UPDATES,)))
    assert begins.updates[-1].state.version == 4
    context, _ = loop_context(longer, [Member(fuse, 0, None)], tmp_path / "b", begins)
    await EvolutionLoop(context, begins.updates).run()
    assert read_state(tmp_path / "b" / FINAL).seconds > begins.updates[-1].state.seconds


async def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(tmp_path: Path) -> None:
    config = grpo_config(budget={"max_steps": 4}, checkpoint={"every_steps": 1, "keep": 3})
    context, _ = loop_context(config, [Generator(Fuse(0), 0, random.Random(1))], tmp_path)
    await PolicyGradientLoop(context, FakeTrainer()).run()
    newest, before, *_ = paths = candidates_in_attempt(tmp_path)
    (newest / "weights").write_text("5")
    begins = restored(config, Candidates(tuple(paths)))
    assert begins.folder == before
    assert begins.refused == (f"{newest}: its file weights is not the one that was written",)
    for path in paths:
        (path / "weights").unlink()
    with pytest.raises(RunFailed, match=r"None of the checkpoints .* file weights is missing"):
        restored(config, Candidates(tuple(paths)))


async def test_the_newest_and_the_best_checkpoints_are_kept_across_attempts(tmp_path: Path) -> None:
    config = grpo_config(
        budget={"max_steps": 4},
        checkpoint={"every_steps": 1, "keep": 2},
        evaluation={"num_tasks": 4, "every_steps": 1},
    )

    def best_at_one(request: EpisodeRequest, generator: FakeGenerator) -> float:
        if request.split == "train":
            return float(request.trajectory_id.endswith("0"))
        return float(generator.version == 1)

    context, sink = loop_context(config, [FakeGenerator(best_at_one)], tmp_path / "a")
    await PolicyGradientLoop(context, FakeTrainer()).run()
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [FINAL, "step-000001", "step-000003", "step-000004"]
    announced = [event for event in sink.events if isinstance(event, CheckpointLogged)]
    assert [event.step for event in announced if event.is_best] == [1]
    assert all(event.num_bytes for event in announced)
    longer = grpo_config(**(config.model_dump() | {"budget": {"max_steps": 6}}))
    begins = restored(longer, candidates_in(tmp_path / "a" / "step-000004"))
    assert begins.kept == ()  # they are another run's
    begins = restored(longer, Candidates((tmp_path / "a" / "step-000004",)))
    generator = FakeGenerator(best_at_one)
    generator.version = generator.weights = 4
    context, _ = loop_context(longer, [generator], tmp_path / "b", begins)
    trainer = FakeTrainer()
    trainer.batches = [[] for _ in range(4)]
    await PolicyGradientLoop(context, trainer).run()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [FINAL, "step-000001"]
    left = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert left == [FINAL, "step-000005", "step-000006"]


@pytest.mark.parametrize(
    "method",
    [
        {"name": "grpo", "num_prompts": 1, "group_size": 2},
        {"name": "grpo", "num_prompts": 3, "group_size": 2},
        {"name": "grpo", "num_prompts": 2, "group_size": 4},
    ],
)
async def test_a_fork_with_other_batches_begins_with_prompts_of_its_own(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    config = grpo_config(budget={"max_steps": 4}, checkpoint={"every_steps": 4})
    context, _ = loop_context(config, [FakeGenerator(lambda *_: 1.0)], tmp_path / "a")
    await PolicyGradientLoop(context, FakeTrainer()).run()
    changed = grpo_config(method=method, budget={"max_steps": 6})
    folder = tmp_path / "a" / "step-000004"
    assert restored(changed, Candidates((folder,))).state.evaluated == 4  # it is the run's own
    begins = restored(changed, Candidates((folder,), owns=False))
    assert begins.state.trained.trajectories == 0  # its books begin anew, all of them
    generator, trainer = FakeGenerator(lambda *_: 1.0), FakeTrainer()
    generator.version = generator.weights = 4
    trainer.batches = [[] for _ in range(4)]
    context, _ = loop_context(changed, [generator], tmp_path / "b", begins)
    loop = PolicyGradientLoop(context, trainer)
    async with asyncio.timeout(20):  # a ledger of other batches would let nothing start
        await loop.run()
    batch = method["num_prompts"] * method["group_size"]
    assert [len(samples) for samples in trainer.batches[4:]] == [batch, batch]
    assert loop.ledger == Ledger(
        issued=6 * method["num_prompts"], trained=6 * method["num_prompts"]
    )
    same = restored(grpo_config(budget={"max_steps": 6}), Candidates((folder,), owns=False))
    assert same.state.evaluated == 4


@pytest.mark.parametrize("is_fork", [True, False])
async def test_a_fork_has_training_time_of_its_own_and_a_run_that_goes_on_keeps_its(
    tmp_path: Path, is_fork: bool
) -> None:
    config = grpo_config(budget={"max_steps": 4}, checkpoint={"every_steps": 4})
    context, _ = loop_context(config, [FakeGenerator(lambda *_: 1.0)], tmp_path / "a")
    await PolicyGradientLoop(context, FakeTrainer()).run()
    folder = tmp_path / "a" / "step-000004"
    spent = read_state(folder).seconds
    longer = grpo_config(budget={"max_steps": 9, "max_seconds": spent})
    begins = restored(longer, Candidates((folder,), owns=not is_fork, is_fork=is_fork))
    generator, trainer = FakeGenerator(lambda *_: 1.0), FakeTrainer()
    generator.version = generator.weights = 4
    trainer.batches = [[] for _ in range(4)]
    context, _ = loop_context(longer, [generator], tmp_path / "b", begins)
    await PolicyGradientLoop(context, trainer).run()
    assert (context.progress.version > 4) == is_fork


async def test_a_restored_home_keeps_and_removes_nothing_of_the_one_it_was_copied_from(
    tmp_path: Path,
) -> None:
    config = grpo_config(budget={"max_steps": 3}, checkpoint={"every_steps": 1, "keep": 3})
    old, new = tmp_path / "old", tmp_path / "new"
    first = old / "attempts" / "r-a1" / "checkpoints"
    context, _ = loop_context(config, [FakeGenerator(lambda request, _: 1.0)], first)
    await PolicyGradientLoop(context, FakeTrainer()).run()
    shutil.copytree(old, new)
    newest = new / "attempts" / "r-a1" / "checkpoints" / "step-000003"
    begins = restored(config, Candidates((newest,)))
    assert [kept.path for kept in begins.kept] == [
        newest.with_name(name) for name in ("step-000001", "step-000002", "step-000003")
    ]


async def test_a_run_that_fails_saves_what_it_has_learned(tmp_path: Path) -> None:
    def breaks(request: EpisodeRequest, generator: FakeGenerator) -> float:
        if request.split == "train" and generator.version == 3:
            raise KeyError("no such board")
        return float(request.trajectory_id.endswith("0"))

    config = grpo_config(budget={"max_steps": 9}, checkpoint={"every_steps": 9})
    context, _ = loop_context(config, [FakeGenerator(breaks)], tmp_path)
    with pytest.raises(RunFailed, match="no such board"):
        await PolicyGradientLoop(context, FakeTrainer()).run()
    state = read_state(tmp_path / "step-000003")
    assert state.version == 3
    waiting = {int(group.trajectories[0].trajectory_id.split("/")[1]) for group in state.pool}
    assert waiting | set(state.in_flight) == {6, 7}
