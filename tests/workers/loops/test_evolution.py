import math
from pathlib import Path
from typing import Any

import pytest

from lagoon import metrics as m
from lagoon.config import RunConfig
from lagoon.evolution import member_seeds
from tests.builders import es_config
from tests.workers.fakes import FakeGenerator, ListSink, loop_context
from workers.failures import RunFailed
from workers.handles import UpdateReport
from workers.loops.evolution import EvolutionLoop
from workers.loops.updates import refuse_disagreement
from workers.rollout import EpisodeRequest


def by_seed(request: EpisodeRequest, generator: FakeGenerator) -> float:
    return float((generator.perturbed_with or 0) % 7)


async def run(
    config: RunConfig, folder: Path, num_generators: int
) -> tuple[str, ListSink, list[FakeGenerator]]:
    generators = [FakeGenerator(by_seed) for _ in range(num_generators)]
    context, sink = loop_context(config, generators, folder)
    loop = EvolutionLoop(context)
    return await loop.run(), sink, generators


def updates(generator: FakeGenerator) -> list[tuple[Any, ...]]:
    return [call for call in generator.calls if call[0] == "update"]


@pytest.mark.parametrize("num_generators", [1, 2, 3])
async def test_every_generator_applies_the_update_of_the_whole_population(
    tmp_path: Path, num_generators: int
) -> None:
    config = es_config()
    outcome, _, generators = await run(config, tmp_path, num_generators)
    assert outcome == "finished"
    for generator in generators:
        assert updates(generator) == updates(generators[0])
    for version, (_, label, seeds, coefficients) in enumerate(updates(generators[0])):
        assert label == version + 1
        assert seeds == tuple(member_seeds(config.seed, version, 4))
        fitness = [float(seed % 7) for seed in seeds]
        expected = config.method.coefficients(fitness, 5e-4)  # type: ignore[attr-defined]
        assert coefficients == pytest.approx(expected)


async def test_the_number_of_generators_does_not_change_the_updates(tmp_path: Path) -> None:
    _, _, alone = await run(es_config(), tmp_path / "a", 1)
    _, _, together = await run(es_config(), tmp_path / "b", 3)
    assert updates(alone[0]) == updates(together[0])


async def test_members_of_a_generation_play_the_same_cases(tmp_path: Path) -> None:
    _, _, generators = await run(es_config(), tmp_path, 2)
    cases: dict[int, set[str]] = {}
    for call in (call for g in generators for call in g.calls if call[:2] == ("play", "train")):
        cases.setdefault(call[3], set()).add(call[2])
    assert all(len(prompts) == 3 for prompts in cases.values())
    assert cases[0] == cases[1] == cases[2]


async def test_resampled_cases_differ_between_generations(tmp_path: Path) -> None:
    method = {"name": "es", "population": 4, "num_cases": 3, "resample_cases": True}
    _, _, generators = await run(es_config(method=method), tmp_path, 1)
    plays = [call for call in generators[0].calls if call[:2] == ("play", "train")]
    assert len({call[2] for call in plays}) == 9


async def test_the_unperturbed_policy_is_evaluated(tmp_path: Path) -> None:
    _, sink, _ = await run(es_config(), tmp_path, 2)
    assert sink.values(m.HELDOUT_SUCCESS) == {0: 0.0, 2: 0.0, 3: 0.0}


async def test_a_synchronous_evolution_has_no_stale_member(tmp_path: Path) -> None:
    _, sink, _ = await run(es_config(), tmp_path, 2)
    assert sink.histograms(m.TOTAL_HISTOGRAM) == {step: {0: 4 * 3 * 2} for step in (1, 2, 3)}
    assert sink.values(m.STALENESS_MISSING) == {1: 0, 2: 0, 3: 0}


async def test_generators_that_drift_apart_end_the_run(tmp_path: Path) -> None:
    class Drifting(FakeGenerator):
        async def update(self, *arguments: Any) -> UpdateReport:
            await super().update(*arguments)
            return UpdateReport("another checksum", 0.5, 0.7, 100)

    generators = [FakeGenerator(by_seed), Drifting(by_seed)]
    context, _ = loop_context(es_config(), generators, tmp_path)
    loop = EvolutionLoop(context)
    with pytest.raises(RunFailed, match="Generators 0 and 1 hold different weights after update 1"):
        await loop.run()


@pytest.mark.parametrize("control", ["none", "shuffled_rewards"])
async def test_a_reward_that_is_not_finite_ends_the_run_before_the_update(
    tmp_path: Path, control: str
) -> None:
    def broken(request: EpisodeRequest, generator: FakeGenerator) -> float:
        is_broken = generator.version == 1 and request.trajectory_id.endswith("g1m2")
        return math.nan if is_broken else by_seed(request, generator)

    generator = FakeGenerator(broken)
    context, _ = loop_context(es_config(control=control), [generator], tmp_path)
    with pytest.raises(RunFailed, match=r"'Sudoku 4x4' paid .* member 2 of generation 1 is nan"):
        await EvolutionLoop(context).run()
    assert [call[1] for call in updates(generator)] == [1]


@pytest.mark.parametrize(
    ("checksums", "who"),
    [("aab", "0 and 2"), ("abc", "0, 1 and 2")],
)
def test_generators_that_disagree_are_named(checksums: str, who: str) -> None:
    with pytest.raises(RunFailed, match=f"Generators {who} hold different weights after update 3"):
        refuse_disagreement(list(checksums), 3)
    refuse_disagreement(["a", "a"], 3)


async def test_the_update_norm_is_reported_beside_its_law(tmp_path: Path) -> None:
    _, sink, _ = await run(es_config(), tmp_path, 1)
    assert set(sink.values(m.UPDATE_NORM).values()) == {0.5}
    assert sink.values(m.UPDATE_NORM_LAW)[1] == pytest.approx(5e-4 * (100 / 4) ** 0.5)
    assert set(sink.values(m.SIGMA).values()) == {1e-3}


async def test_a_stop_request_ends_between_generations(tmp_path: Path) -> None:
    def stopping(request: EpisodeRequest, generator: FakeGenerator) -> float:
        if generator.version == 2 and request.split == "train":
            context.stop.set()
        return by_seed(request, generator)

    config = es_config(budget={"max_steps": 1000})
    context, _ = loop_context(config, [FakeGenerator(stopping)], tmp_path)
    loop = EvolutionLoop(context)
    assert await loop.run() == "stopped"
    assert loop.version == 2
