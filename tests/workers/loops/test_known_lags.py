"""A trace whose lags are known, through the loop to the histograms."""

from dataclasses import replace
from pathlib import Path

import pytest

from lagoon import metrics as m
from lagoon.books import Books
from lagoon.ledger import Ledger
from lagoon.trajectory import TrajectoryGroup
from tests.builders import trajectory
from tests.workers.loops.test_async import UNFILTERED, overlapping
from tests.workers.streaming import Chance, ran
from workers.loops.state import LoopState
from workers.resuming import Restored


async def test_a_trace_of_known_lags_gives_exactly_the_known_histograms(tmp_path: Path) -> None:
    """Two groups that wait at version 5, with tokens of versions 1 to 5."""
    given = [
        TrajectoryGroup(
            "p",
            (
                trajectory(versions=(None, 1, 1, 3), mask=(0, 1, 1, 1), completed=4, reward=1.0),
                trajectory(versions=(5, 5), completed=5, reward=0.0),
            ),
        ),
        TrajectoryGroup(
            "q",
            (
                trajectory(versions=(2, 3, 4), completed=4, reward=0.0),
                trajectory(versions=(4, None), completed=5, reward=1.0),
            ),
        ),
    ]
    pool = tuple(
        TrajectoryGroup(
            group.prompt_id,
            tuple(
                replace(each, trajectory_id=f"train/{at}/{member}")
                for member, each in enumerate(group.trajectories)
            ),
        )
        for at, group in enumerate(given, start=10)
    )
    config = overlapping(UNFILTERED, steps=6)
    tokens = sum(each.num_actions for group in pool for each in group.trajectories)
    books = Books(Ledger(issued=12, ready=2, trained=10), Ledger(issued=tokens, ready=tokens))
    begins = LoopState(5, 5, 0.0, 0, 0, books, pool=pool)
    run = await ran(config, tmp_path, Chance(0), begins=Restored(None, begins))
    assert run.sink.histograms(m.TOTAL_HISTOGRAM)[6] == {0: 2, 1: 2, 2: 2, 3: 1, 4: 2}
    assert run.sink.histograms(m.GENERATION_HISTOGRAM)[6] == {0: 3, 1: 3, 2: 1, 3: 2}
    assert run.sink.histograms(m.WAITING_HISTOGRAM)[6] == {0: 3, 1: 6}
    assert run.sink.histograms(m.WORST_HISTOGRAM)[6] == {0: 1, 1: 1, 3: 1, 4: 1}
    assert run.sink.histograms(m.SPAN_HISTOGRAM)[6] == {1: 2, 2: 1, 3: 1}
    assert run.sink.values(m.STALENESS_COVERAGE)[6] == pytest.approx(9 / 10)
