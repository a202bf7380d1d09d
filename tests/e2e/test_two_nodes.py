"""The same driver on a Ray cluster of two nodes, one generator on each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from lagoon import metrics as m
from tests.e2e.runs import Ran, small_es

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("no_ray_left")]


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two Ray nodes of one CPU each on this machine: a second generator fits only on the other."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_generators_on_two_nodes_hold_the_same_weights_after_every_update(
    two_nodes: Cluster, policy_folder: Path, tmp_path: Path
) -> None:
    ran = Ran(
        small_es(policy_folder, rollout={"num_generators": 2, "kv_cache_gib": 0.25}), tmp_path
    )
    assert (ran.status, ran.ended["outcome"]) == (0, "finished"), ran.ended
    assert set(ran.values(m.VERIFIED_ENGINES).values()) == {2.0}
    assert set(ran.values(m.MISMATCHED_ENGINES).values()) == {0.0}
