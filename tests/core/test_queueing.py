"""The queue's decision, over made-up clusters and over whole lives of a queue."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lagoon.placement import Node, Process, placed, room
from lagoon.queueing import (
    NEVER_SEEN,
    PRIORITIES,
    Decision,
    Lease,
    Waiting,
    in_order,
    named,
    plan,
)

OWNERS = ("ada", "bob", "eve")
NODES = st.lists(
    st.builds(
        Node,
        id=st.sampled_from(["n1", "n2", "n3"]),
        cpus=st.sampled_from([0.0, 1.0, 2.0, 8.0]),
        gpus=st.sampled_from([0.0, 1.0, 2.0]),
    ),
    unique_by=lambda node: node.id,
    max_size=3,
)
PROCESSES = st.lists(
    st.builds(
        Process,
        name=st.just("generator 0"),
        cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        gpus=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
WAITING = st.lists(
    st.builds(
        Waiting,
        run_id=st.integers(0, 30).map(lambda n: f"w{n}"),
        owner=st.sampled_from(OWNERS),
        priority=st.sampled_from(PRIORITIES),
        number=st.integers(0, 9),
        processes=PROCESSES,
    ),
    unique_by=lambda run: run.run_id,
    max_size=8,
)
LEASES = st.lists(
    st.builds(
        Lease,
        run_id=st.integers(0, 5).map(lambda n: f"h{n}"),
        owner=st.sampled_from(OWNERS),
        node=st.sampled_from(["n1", "n2", "n3", "gone"]),
        cpus=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
        gpus=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    max_size=4,
)


def starts(decisions: list[Decision]) -> list[str]:
    return [each.run_id for each in decisions if each.places is not None]


def leases_of(run: Waiting, places: tuple[str, ...]) -> list[Lease]:
    return [
        Lease(run.run_id, run.owner, node, process.cpus, process.gpus)
        for process, node in zip(run.processes, places, strict=True)
    ]


def run(id: str, cpus: float = 2, gpus: float = 0, **changes: object) -> Waiting:
    made = Waiting(id, "ada", "normal", int(id[1:]), (Process("generator 0", cpus, gpus),))
    return replace(made, **changes)  # type: ignore[arg-type]


@given(NODES, LEASES, WAITING)
def test_every_run_is_decided_once_and_every_wait_has_a_reason(
    nodes: list[Node], leases: list[Lease], waiting: list[Waiting]
) -> None:
    decisions = plan(nodes, leases, waiting)
    assert Counter(each.run_id for each in decisions) == Counter(w.run_id for w in waiting)
    empty = {node.id: room(node) for node in nodes}
    for decision in decisions:
        one = next(w for w in waiting if w.run_id == decision.run_id)
        assert (decision.places is None) == bool(decision.reason)
        impossible = placed(one.processes, empty) is None
        assert ("cannot start on this cluster" in decision.reason) == (impossible and bool(nodes))
        assert "{" not in named(decision.reason, dict.fromkeys(decision.waits_for, "x"))
        assert all(id.startswith(("h", "w")) for id in decision.waits_for)


@given(NODES, LEASES, WAITING)
def test_nothing_that_starts_takes_more_than_is_free(
    nodes: list[Node], leases: list[Lease], waiting: list[Waiting]
) -> None:
    runs = {each.run_id: each for each in waiting}
    new = [
        lease
        for decision in plan(nodes, leases, waiting)
        if decision.places is not None
        for lease in leases_of(runs[decision.run_id], decision.places)
    ]
    for node in nodes:
        for kind in ("cpus", "gpus"):
            before = sum(getattr(each, kind) for each in leases if each.node == node.id)
            taken = sum(getattr(each, kind) for each in new if each.node == node.id)
            assert taken <= max(0.0, getattr(node, kind) - before) + 1e-9
    assert {each.node for each in new} <= {node.id for node in nodes}


@given(NODES, LEASES, WAITING, st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order_of_what_it_is_given(
    nodes: list[Node], leases: list[Lease], waiting: list[Waiting], dealer: random.Random
) -> None:
    shuffled = [list(each) for each in (nodes, leases, waiting)]
    for each in shuffled:
        dealer.shuffle(each)
    assert plan(*shuffled) == plan(nodes, leases, waiting)  # type: ignore[arg-type]


@given(NODES, LEASES, WAITING)
def test_a_higher_priority_is_never_behind_a_lower_one(
    nodes: list[Node], leases: list[Lease], waiting: list[Waiting]
) -> None:
    levels = [PRIORITIES.index(each.priority) for each in in_order(nodes, leases, waiting)]
    assert levels == sorted(levels, reverse=True)


@settings(max_examples=60)
@given(
    NODES.filter(bool),
    PROCESSES,
    st.lists(PROCESSES, max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_run_that_fits_is_never_overtaken_for_ever(
    nodes: list[Node],
    large: tuple[Process, ...],
    held: list[tuple[Process, ...]],
    dealer: random.Random,
) -> None:
    """Small runs arrive without end and each lasts two rounds; the first run starts all the same,
    at the latest when everything that runs at first has ended."""
    first = Waiting("w0", "ada", "normal", 0, large)
    if placed(large, {node.id: room(node) for node in nodes}) is None:
        return
    holding: list[tuple[int, list[Lease]]] = []
    for index, processes in enumerate(held):
        one = Waiting(f"h{index}", "bob", "normal", 0, processes)
        [decision] = plan(nodes, [lease for _, each in holding for lease in each], [one])
        if decision.places is not None:
            holding.append((dealer.randrange(1, 4), leases_of(one, decision.places)))
    for now in range(1, 8):
        holding = [(end, each) for end, each in holding if end > now]
        small = (Process("generator 0", dealer.choice([0.5, 1]), dealer.choice([0, 0.5, 1])),)
        arrivals = [Waiting(f"w{now}{i}", "ada", "normal", now, small) for i in range(4)]
        leases = [lease for _, each in holding for lease in each]
        runs = {each.run_id: each for each in (first, *arrivals)}
        for decision in plan(nodes, leases, runs.values()):
            if decision.places is not None:
                begun = leases_of(runs[decision.run_id], decision.places)
                holding.append((now + 2, begun))
        if any(lease.run_id == "w0" for _, each in holding for lease in each):
            return
    raise AssertionError("the first run was overtaken seven times")


def test_without_nodes_nothing_starts_and_the_reason_says_so() -> None:
    assert plan([], [], [run("w1")]) == [Decision("w1", None, NEVER_SEEN)]
    assert plan([], [], [run("w1")], "Ray is away.") == [Decision("w1", None, "Ray is away.")]


def test_on_a_machine_of_two_cores_one_run_of_two_goes_first() -> None:
    nodes = [Node("n1", 2, 0)]
    first, second = plan(nodes, [], [run("w2"), run("w1")])
    assert first == Decision("w1", ("n1",), "")
    assert second.reason == "Needs 2 CPUs, 0 free: {w1} holds 2 until it ends."
    assert second.waits_for == ("w1",)


def test_a_reason_counts_what_is_missing_and_names_who_holds_it() -> None:
    nodes = [Node("n1", 8, 2)]
    held = [Lease("h1", "bob", "n1", 1, 1)]
    [one] = plan(nodes, held, [run("w1", cpus=1, gpus=2)])
    assert one.reason == "Needs 2 GPUs, 1 free: {h1} holds 1 until it ends."
    held = [Lease(f"h{n}", "bob", "n1", 2, 0.5) for n in range(4)]
    [one] = plan(nodes, held, [run("w1", cpus=1, gpus=2)])
    assert one.reason == (
        "Needs 2 GPUs, 0 free, and 1 CPU, 0 free: {h0} holds 0.5 GPUs and 2 CPUs, {h1} holds "
        "0.5 GPUs and 2 CPUs and 2 more hold the rest, until they end."
    )


def test_slots_of_what_has_ended_are_held_until_its_processes_are_gone() -> None:
    nodes = [Node("n1", 2, 0)]
    [one] = plan(nodes, [Lease("h1", "bob", "n1", 2, 0, is_ending=True)], [run("w1")])
    assert one.reason == "Needs 2 CPUs, 0 free: {h1} holds 2 until its processes are gone."
    [again] = plan(nodes, [Lease("w1", "ada", "n1", 2, 0, is_ending=True)], [run("w1")])
    assert again.reason == (
        "Needs 2 CPUs, 0 free: its own earlier attempt holds 2 until its processes are gone."
    )
    assert again.waits_for == ()


def test_a_run_that_can_never_fit_is_told_so_and_keeps_nothing() -> None:
    nodes = [Node("n1", 4, 1), Node("n2", 4, 1)]
    never, apart, small = plan(
        nodes, [], [run("w1", gpus=4), run("w2", cpus=1, gpus=2), run("w3", cpus=1, gpus=1)]
    )
    advice = "it cannot start on this cluster. Stop it, or add nodes."
    assert never.reason == f"Needs 4 GPUs, and there are 2 in all: {advice}"
    assert apart.reason == (
        f"Its generator 0 needs 2 GPUs and 1 CPU on one node, and no node has that: {advice}"
    )
    assert small.places == ("n1",)
    three = tuple(Process(f"generator {n}", 3, 0) for n in range(2))
    trainer = Process("trainer", 2, 0)
    [mixed] = plan(nodes, [], [run("w1", processes=(*three, trainer))])
    assert mixed.reason == f"Its processes do not fit on the nodes, even on empty ones: {advice}"


def test_what_is_free_but_scattered_is_explained() -> None:
    nodes = [Node("n1", 2, 0), Node("n2", 2, 0)]
    held = [Lease("h1", "bob", "n1", 1, 0), Lease("h2", "bob", "n2", 1, 0)]
    [one] = plan(nodes, held, [run("w1")])
    assert one.reason == (
        "Its generator 0 needs 2 CPUs free on one node: {h1} holds 1 and {h2} holds 1, until they "
        "end."
    )


def test_small_runs_pass_a_large_one_only_where_they_cannot_delay_it() -> None:
    nodes = [Node("n1", 2, 1), Node("n2", 2, 0)]
    held = [Lease("h1", "bob", "n1", 1, 1)]
    large, beside, kept = plan(
        nodes, held, [run("w1", cpus=1, gpus=1), run("w2", cpus=2), run("w3", cpus=1)]
    )
    assert large.places is None
    assert beside.places == ("n2",)
    assert kept.reason == "What is free is kept for {w1}, which comes before it."


def test_users_take_turns_and_who_holds_less_is_first() -> None:
    nodes = [Node("n1", 8, 0)]
    held = [Lease("h1", "ada", "n1", 2, 0)]
    waiting = [run(f"w{n}", owner="ada") for n in (1, 2)]
    waiting += [run(f"w{n}", owner="bob") for n in (3, 4, 5)]
    assert [each.run_id for each in in_order(nodes, held, waiting)] == [
        "w3",
        "w1",
        "w4",
        "w2",
        "w5",
    ]
    waiting[4] = replace(waiting[4], priority="high")
    waiting[0] = replace(waiting[0], priority="low")
    ordered = [each.run_id for each in in_order(nodes, held, waiting)]
    assert (ordered[0], ordered[-1]) == ("w5", "w1")


def test_other_runs_are_named_only_to_those_who_may_see_them() -> None:
    reason = "Needs 2 CPUs, 0 free: {w1} holds 1 and {w2} holds 1, until they end."
    assert named(reason, {"w1": "mine"}) == (
        "Needs 2 CPUs, 0 free: run mine (w1) holds 1 and another run holds 1, until they end."
    )
