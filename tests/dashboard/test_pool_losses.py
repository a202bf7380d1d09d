import asyncio
import math
from pathlib import Path

import pytest

from dashboard.views.pool_losses import bias_words, cost_words
from dashboard.watch import Curve
from lagoon.events import Event
from tests.builders import grpo_config
from tests.dashboard import canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import text
from tests.dashboard.test_pages import RUNS, run_page
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from workers.loops.policy_gradient import PolicyGradientLoop


async def rejecting(folder: Path) -> list[Event]:
    """The events of a loop whose pool is above its target."""
    method = {"name": "pace", "num_prompts": 1, "group_size": 2, "target": 1, "smoothing": 0}
    config = grpo_config(method=method, rollout={"max_concurrent": 8})
    context, sink = loop_context(config, [FakeGenerator(lambda *_: 1.0)], folder)
    await PolicyGradientLoop(context, FakeTrainer()).run()
    return sink.events


def test_what_a_method_has_given_up_is_told_with_what_keeping_it_would_have_cost(
    tmp_path: Path,
) -> None:
    fake = FakeApi()
    fake.series[RUNS["running"]] = canned_series.reported(asyncio.run(rejecting(tmp_path)))
    tested = run_page("running", "pool", fake)
    shown = text(tested)
    assert not tested.exception
    assert "Every sampled token is somewhere" in shown
    assert shown.count("balances") == 2
    assert "Kept and rejected" in shown
    assert "rejected_waiting" in shown


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (-0.1234, "are 12.3 % shorter than all"),
        (0.05, "are 5.0 % longer than all"),
        (0.004, "as long as what was given up"),
        (math.nan, "Nothing was trained on yet."),
    ],
)
def test_a_bias_in_length_is_said_in_words(bias: float, words: str) -> None:
    assert words in bias_words(bias)


def test_the_cost_of_keeping_everything_is_said_once_it_is_known() -> None:
    known = cost_words(Curve("s", {}, {3: 1.25}), Curve("d", {}, {3: 0.5}))
    assert "lagged by 1.25 policy versions" in known
    assert "waited 0.5 steps longer" in known
    assert "not known yet" in cost_words(None, Curve("d", {}))
    assert "not known yet" in cost_words(Curve("s", {}, {3: math.nan}), Curve("d", {}, {3: 0.0}))
