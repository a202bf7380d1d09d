"""The same driver on a Ray cluster of two nodes, one generator on each."""

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from lagoon import metrics as m
from lagoon.checkpoints import UPDATES
from lagoon.config import RunConfig
from tests.e2e.runs import Ran, moved, small_es, small_grpo, weights
from workers import cluster
from workers.resuming import candidates_in

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TWO_GENERATORS = {"num_generators": 2, "kv_cache_gib": 0.25}


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    """Two Ray nodes of one CPU each on this machine: a second generator fits only on the other."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.address)
        yield
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(autouse=True)
def places_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The run's log says where its actors are, as it does on the platform."""
    caplog.set_level(logging.INFO, logger=cluster.__name__)


class Somewhere:
    """An actor that knows where it is."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def test_a_process_goes_to_the_node_that_was_leased_for_it_while_that_is_there() -> None:
    cluster.connect()
    try:
        nodes = [each["NodeID"] for each in ray.nodes()]
        assert len(nodes) == 2
        for leased in [*nodes, *reversed(nodes), "a" * 56]:
            strategy = cluster.strategy(leased, "SPREAD")
            actor = ray.remote(Somewhere).options(scheduling_strategy=strategy).remote()
            found = ray.get(actor.node.remote(), timeout=60)
            assert found == leased or leased not in nodes
            ray.kill(actor)
    finally:
        ray.shutdown()


def ran_on_both_nodes(config: RunConfig, output: Path) -> Ran:
    """A run of two generators that reported two different nodes and held equal weights."""
    ran = Ran(config, output)
    assert (ran.status, ran.ended["outcome"]) == (0, "finished"), ran.ended
    lines = "\n".join(line for event in ran.events for line in event.get("lines", ()))
    nodes = dict(re.findall(r"Generator (\d) is ready on .*Ray node (\w+)\.", lines))
    assert set(nodes) == {"0", "1"}
    assert nodes["0"] != nodes["1"]
    assert set(ran.values(m.VERIFIED_ENGINES).values()) == {2.0}
    assert set(ran.values(m.MISMATCHED_ENGINES).values()) == {0.0}
    return ran


def test_es_generators_on_two_nodes_hold_the_same_weights_and_the_log_gives_them_again(
    policy_folder: Path, tmp_path: Path
) -> None:
    config = small_es(policy_folder, rollout=TWO_GENERATORS)
    ran = ran_on_both_nodes(config, tmp_path)
    norms, laws = ran.values(m.UPDATE_NORM), ran.values(m.UPDATE_NORM_LAW)
    for step, norm in norms.items():
        # Either the members differed, and z-scores fix the length, or nothing moved at all.
        assert norm == pytest.approx(laws[step], rel=0.02) or norm == 0.0
    assert all(set(counts) == {"0"} for counts in ran.histograms(m.TOTAL_HISTOGRAM).values())
    final = tmp_path / "checkpoints" / "final"
    assert moved(policy_folder, final) == any(norms.values())
    assert any(norms.values())

    # As a kill right after the last update leaves it: no weights, only the log of updates.
    left = tmp_path / "left" / "checkpoints"
    left.mkdir(parents=True)
    shutil.copy(tmp_path / "checkpoints" / UPDATES, left)
    again = Ran(small_es(policy_folder), tmp_path / "again", candidates_in(left.parent))
    assert (again.status, again.ended["outcome"]) == (0, "finished")
    assert again.values(m.UPDATE_NORM) == norms  # reported once more
    made_again = weights(tmp_path / "again" / "checkpoints" / "final")
    assert all(torch.equal(made_again[name], tensor) for name, tensor in weights(final).items())


def test_grpo_publishes_to_both_nodes_and_stays_on_policy(
    policy_folder: Path, tmp_path: Path
) -> None:
    config = small_grpo(
        policy_folder,
        rollout=TWO_GENERATORS,
        budget={"max_steps": 2},
        # The nodes have no CPU left beside the generators, on which Ray would place it.
        trainer={"learning_rate": 5e-4, "cpus": 0},
    )
    ran = ran_on_both_nodes(config, tmp_path)
    assert set(ran.values(m.VERIFIED_ENGINES)) == {0, 1, 2}
    # Step 2 trained on what both engines sampled with the weights that were published to them.
    assert all(value < 1e-5 for value in ran.values(m.DRIFT_LOGPROB_ABS).values())
    assert all(set(counts) == {"0"} for counts in ran.histograms(m.TOTAL_HISTOGRAM).values())
