import asyncio
import math
from pathlib import Path

import pytest

from dashboard.views.pool_losses import bias_words, cost_words
from dashboard.views.tabs.pool import who_waits
from dashboard.watch import Curve
from lagoon.events import Event
from lagoon.metrics import CATALOGUE, FITNESS, LEDGER_DROPPED, POOL_READY
from tests.builders import es_config, grpo_config
from tests.dashboard import canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import text
from tests.dashboard.test_pages import RUNS, run_page
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop


def test_the_ledger_balances() -> None:
    shown = text(run_page("running", "pool"))
    assert "balances" in shown
    assert "dropped: environment error" in shown


async def played(folder: Path, family: str) -> list[Event]:
    """The events of a real loop that plays with stand-ins."""
    if family == "evolution":
        context, sink = loop_context(es_config(), [FakeGenerator(lambda *_: 1.0)], folder)
        await EvolutionLoop(context).run()
    else:
        context, sink = loop_context(grpo_config(), [FakeGenerator(lambda *_: 1.0)], folder)
        await PolicyGradientLoop(context, FakeTrainer()).run()
    return sink.events


def test_the_pool_of_a_real_synchronous_run_is_said_to_hold_nothing(tmp_path: Path) -> None:
    fake = FakeApi()
    fake.series[RUNS["running"]] = canned_series.reported(asyncio.run(played(tmp_path, "gradient")))
    shown = text(run_page("running", "pool", fake))
    assert "No prompt waits at the end of any step." in shown
    assert "In the last 3 steps" in shown
    assert "balances" in shown


@pytest.mark.parametrize(
    ("starved", "held_back", "words"),
    [
        (6.0, 1.0, "The trainer waits for the generators."),
        (1.0, 6.0, "The generators wait for the trainer."),
        (0.1, 0.2, "Generators and trainer keep up with each other."),
    ],
)
def test_who_waits_for_whom_is_said_in_words_and_in_seconds(
    starved: float, held_back: float, words: str
) -> None:
    steps, waited, blocked = (
        Curve(name, {}, dict.fromkeys(range(1, 41), seconds))
        for name, seconds in (("s", 10.0), ("g", starved), ("b", held_back))
    )
    said = who_waits(steps, waited, blocked)
    assert said is not None
    assert said[0] == words
    assert said[1].startswith("In the last 20 steps (3 min 20 s) the trainer waited ")
    assert who_waits(steps, None, blocked) is None
    assert who_waits(steps, waited, Curve("b", {})) is None


def test_a_pool_in_which_prompts_wait_is_not_called_empty() -> None:
    fake = FakeApi()
    series = canned_series.series_of(RUNS["running"])
    for each in series:
        if each["name"] == POOL_READY.name:
            each["points"]["value"][-1] = 3.0
    fake.series[RUNS["running"]] = series
    assert "No prompt waits" not in text(run_page("running", "pool", fake))


def test_a_real_evolution_reports_no_pool(tmp_path: Path) -> None:
    fake = FakeApi()
    events = asyncio.run(played(tmp_path, "evolution"))
    fake.series[RUNS["finished"]] = canned_series.reported(events)
    assert "Evolution strategies have no pool" in text(run_page("finished", "pool", fake))
    names = {series["name"] for series in fake.series[RUNS["finished"]]}
    assert FITNESS.name in names
    assert not [name for name in names if CATALOGUE[name].panel in ("pool", "ledger")]


def test_a_label_of_a_series_is_never_markup() -> None:
    fake = FakeApi()
    series = canned_series.series_of(RUNS["running"])
    for each in series:
        if each["name"] == LEDGER_DROPPED.name:
            each["labels"] = {"reason": "<img src=x onerror=alert(1)>"}
    fake.series[RUNS["running"]] = series
    shown = text(run_page("running", "pool", fake))
    assert "<img" not in shown
    assert "dropped: &lt;img" in shown


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
