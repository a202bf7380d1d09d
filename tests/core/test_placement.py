"""Where processes fit, against a search that tries everything."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lagoon.placement import Node, Process, Room, placed, processes_of, room
from tests.builders import es_config, grpo_config

AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])
GPUS = st.sampled_from([0.0, 0.25, 0.6, 1.0, 2.0])
PROCESSES = st.builds(Process, name=st.just("p"), cpus=AMOUNTS, gpus=GPUS)
NODES = st.builds(Node, id=st.just("n"), cpus=AMOUNTS, gpus=st.sampled_from([0, 1, 2]))
ROOMS = st.lists(st.builds(room, NODES), min_size=1, max_size=3)


def all_in(rooms: dict[str, Room], processes: list[Process], places: tuple[str, ...]) -> bool:
    """Whether the processes fit so, those with the most GPUs first."""
    left = dict(rooms)
    for process, node in sorted(
        zip(processes, places, strict=True), key=lambda each: -each[0].gpus
    ):
        after = left[node].less(process.cpus, process.gpus)
        if after is None:
            return False
        left[node] = after
    return True


@given(ROOMS, st.lists(PROCESSES, max_size=4))
def test_a_placement_is_found_just_when_there_is_one(
    listed: list[Room], processes: list[Process]
) -> None:
    rooms = {str(index): each for index, each in enumerate(listed)}
    found = placed(processes, rooms)
    every = product(rooms, repeat=len(processes))
    if found is not None:
        assert len(found) == len(processes)
        assert all_in(rooms, processes, found) or any(
            all_in(rooms, processes, places) for places in every
        )
    elif len({(each.cpus, each.gpus) for each in processes}) <= 2:
        assert not any(all_in(rooms, processes, places) for places in every)


def test_a_share_of_a_gpu_is_of_a_single_one() -> None:
    free = room(Node("n", 4, 2))
    once = free.less(0, 0.6)
    assert once == Room(4, (0.4, 1.0))
    assert once.less(0, 0.6) == Room(4, (0.4, 0.4))
    assert once.less(0, 2) is None
    assert placed([Process("p", 0, 0.6)] * 3, {"n": free}) is None


def test_a_lease_that_does_not_fit_by_our_count_takes_what_there_is() -> None:
    assert Room(1, (0.4, 0.4)).taken(2, 0.6) == Room(0, (0.0, 0.2))
    assert Room(1, ()).taken(2, 3) == Room(0, ())


def test_a_run_goes_to_the_fullest_node_that_takes_it_whole() -> None:
    rooms = {"large": Room(8, ()), "small": Room(2, ()), "tiny": Room(1, ())}
    pair = [Process("generator 0", 1, 0), Process("trainer", 1, 0)]
    assert placed(pair, rooms) == ("small", "small")
    assert placed([Process("p", 3, 0)] * 3, rooms) is None
    assert placed([Process("p", 2, 0)] * 5, rooms) == ("large",) * 4 + ("small",)


def test_the_processes_of_a_run_are_its_generators_and_its_trainer() -> None:
    config = grpo_config(
        rollout={"num_generators": 2}, resources={"gpus_per_generator": 0.5}, trainer={"gpus": 1}
    )
    assert processes_of(config.model_dump(mode="json")) == (
        Process("generator 0", 1, 0.5),
        Process("generator 1", 1, 0.5),
        Process("trainer", 1, 1),
    )
    assert [each.name for each in processes_of(es_config().model_dump(mode="json"))] == [
        "generator 0"
    ]
