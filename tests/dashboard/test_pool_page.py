import asyncio
import math
from pathlib import Path

import pytest

from dashboard.views.pool_losses import bias_words
from dashboard.views.pool_rejections import OVER_THE_RUN, cost_words, last_rejection
from dashboard.watch import Curve
from dashboard.words import duration
from lagoon.dropping import NUM_STAGES, reduced
from lagoon.events import Event, StepLogged
from lagoon.metrics import (
    BACKPRESSURE_SECONDS,
    CATALOGUE,
    ENVIRONMENT_SECONDS,
    EPISODE_SECONDS,
    FITNESS,
    GENERATE_SECONDS,
    LEDGER_DROPPED,
    LEDGER_DROPPED_TRAJECTORIES,
    LEDGER_LENGTH_BIAS,
    LEDGER_TRAINED_TRAJECTORIES,
    POOL_LIMIT,
    STEP_SECONDS,
)
from tests.builders import es_config, grpo_config
from tests.dashboard import canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page, text
from tests.dashboard.recorded import record, with_run
from tests.dashboard.test_pages import RUNS, run_page
from tests.workers.fakes import FakeGenerator, FakeTrainer, loop_context
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop


def test_the_ledger_balances() -> None:
    shown = text(run_page("running", "pool"))
    assert "balances" in shown
    assert "dropped (environment error)" in shown


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
    assert "no prompt waits at the end of any step." in shown
    assert "In the last 3 steps" in shown
    assert "balances" in shown


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
    assert "dropped (&lt;img" in shown


def test_what_a_method_has_given_up_is_told_with_what_keeping_it_would_have_cost() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record("pace")), tab="pool")
    shown = text(tested)
    assert not tested.exception
    assert "Prompts by where they are at the end of each update" in shown
    assert "every token of an episode that has come back, is somewhere" in shown
    assert shown.count("balances") == 2
    assert "Balanced at each of 12 steps so far." in shown
    assert "prompts issued = " in shown
    assert "tokens sampled = " in shown
    assert "and scored finished groups for " in shown
    assert "Scored finished groups" in shown
    assert "PACE gave up " in shown
    assert "target 6" in shown
    assert "Kept and rejected" in shown
    assert "dropped (waited too long)" in shown
    assert "had nothing been rejected" in shown.lower()
    assert "by the bound" not in shown


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_ledgers_balance_after_every_stage_of_dropping(share: float) -> None:
    fake, recorded = FakeApi(), record("pace")
    run_id = with_run(fake, recorded)
    end = round(share * len(recorded.events))
    older, newer = list(recorded.events[:end]), list(recorded.events[end:])
    for stage in range(NUM_STAGES):
        older, _ = reduced(older, stage)
        fake.series[run_id] = canned_series.reported([*older, *newer])
        shown = text(open_page(fake, "run", run=run_id, tab="pool"))
        assert "Balanced at each of 12 steps so far." in shown, f"stage {stage + 1}"
        assert shown.count("balances") == 2


def test_a_bounded_method_shows_what_the_bound_allows_and_for_how_long_it_held_back() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record("async_grpo")), tab="pool")
    shown = text(tested)
    assert not tested.exception
    assert "and the generators waited " in shown
    assert "Generators held back by the bound" in shown
    specs = "".join(str(each.proto.spec) for each in tested.get("plotly_chart"))
    assert "most by the bound" in specs


def test_a_bound_that_was_lifted_on_the_way_is_not_said_to_hold_still() -> None:
    fake = FakeApi()
    run_id = with_run(fake, record("async_grpo"))
    lifted = canned_series.one_series(POOL_LIMIT, dict.fromkeys(range(1, 6), 6.0))
    others = [each for each in fake.series[run_id] if each["name"] != POOL_LIMIT.name]
    fake.series[run_id] = [*others, lifted]
    tested = open_page(fake, "run", run=run_id, tab="pool")
    shown = text(tested)
    assert not tested.exception
    assert "Trainer waited for a batch" in shown
    assert "by the bound" not in shown


@pytest.mark.parametrize("method", ["sao", "one_step_off", "grpo"])
def test_the_pool_of_every_method_can_be_read(method: str) -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record(method)), tab="pool")
    shown = text(tested)
    assert not tested.exception
    assert shown.count("balances") == 2
    assert "Trainer waited for a batch" in shown
    words = {
        "sao": "Training is the bottleneck: more groups are finished than it takes.",
        "one_step_off": "New weights are published when the episodes in flight are over",
        "grpo": "Generation and training take turns",
    }
    assert words[method] in shown


def test_the_time_in_tools_is_said_where_episodes_wait_for_them() -> None:
    fake = FakeApi()
    run_id = with_run(fake, record("grpo"))
    fake.series[run_id] = [
        canned_series.one_series(EPISODE_SECONDS, {1: 4.0}),
        canned_series.one_series(ENVIRONMENT_SECONDS, {1: 3.0}),
        *(each for each in fake.series[run_id] if not each["name"].startswith("rollout/e")),
    ]
    shown = text(open_page(fake, "run", run=run_id, tab="pool"))
    assert "An episode waited for tools" in shown
    assert "75.0 % of the 4.0 s that one takes" in shown


def test_the_waits_of_a_run_too_long_to_be_read_whole_are_those_of_its_last_ten_steps() -> None:
    fake = FakeApi()
    run_id = with_run(fake, record("async_grpo"))
    last = 4000
    # Every hundredth step is slow, and would be most of what thinning leaves.
    slow = {step: 50.0 if step % 100 == 0 else 2.0 + step % 3 for step in range(1, last + 1)}
    long = {
        STEP_SECONDS: slow,
        GENERATE_SECONDS: {step: seconds / 2 for step, seconds in slow.items()},
        BACKPRESSURE_SECONDS: dict.fromkeys(slow, 0.25),
    }
    names = {metric.name for metric in long}
    fake.series[run_id] = [
        *(each for each in fake.series[run_id] if each["name"] not in names),
        *(canned_series.one_series(metric, values) for metric, values in long.items()),
    ]
    shown = text(open_page(fake, "run", run=run_id, tab="pool"))
    seconds = math.fsum(slow[step] for step in range(last - 9, last + 1))
    assert f"In the last 10 steps ({duration(seconds)}) the trainer waited" in shown
    asked = [dict(r.url.params) for r in fake.requests if "from_step" in r.url.params]
    assert [each["from_step"] for each in asked] == [str(last - 9)]


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (-0.1234, "are 12.3 % shorter than all"),
        (0.05, "are 5.0 % longer than all"),
        (0.004, "hardly changes the length of what is trained on"),
        (math.nan, "Nothing was trained on yet."),
    ],
)
def test_a_bias_in_length_is_said_in_words(bias: float, words: str) -> None:
    assert words in bias_words(bias)


def test_the_cost_of_keeping_everything_is_that_of_the_last_step_that_rejected() -> None:
    rejected = [Curve("r", {"reason": "a"}, {1: 2.0, 4: 0.0}), Curve("r", {}, {3: 1.0, 5: 0.0})]
    assert last_rejection(rejected, []) == 3
    assert last_rejection([Curve("r", {}, {1: 0.0})], []) is None
    whole, thinned = Curve("s", {}, {1: 1.0}), Curve("s", {}, {1: 1.0, 5: 1.0})
    thinned.is_thinned = True
    assert last_rejection(rejected, [whole]) == 3
    assert last_rejection(rejected, [thinned]) == 1
    trained = Curve("t", {}, {3: 1.0, 5: 9.0})
    staleness, delay = Curve("s", {}, {3: 1.25, 5: 8.0}), Curve("d", {}, {3: 0.5, 5: 0.0})
    known = cost_words(3, staleness, delay, trained)
    assert "the batch of step 3 would have lagged by 1.25 policy versions instead of 1.00" in known
    assert "waited 0.5 steps longer" in known
    assert "is not known" in cost_words(3, None, delay, trained)
    assert "is not known" in cost_words(3, Curve("s", {}, {3: math.nan}), delay, trained)
    assert "Nothing was rejected" in cost_words(None, staleness, delay, trained)


def test_rejections_and_the_bias_in_length_are_drawn_over_the_run() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record("pace")), tab="pool")
    assert not tested.exception
    drawn = "".join(map(str, tested.get("plotly_chart")))
    for metric in (*OVER_THE_RUN, LEDGER_LENGTH_BIAS, LEDGER_DROPPED_TRAJECTORIES):
        assert f"chart_small_{metric.name.replace('/', '_')}" in drawn


def test_what_was_trained_on_stands_beside_what_was_given_up_with_its_outcomes() -> None:
    fake, recorded = FakeApi(), record("pace")
    shown = text(open_page(fake, "run", run=with_run(fake, recorded), tab="pool"))
    points = [
        point
        for event in recorded.events
        if isinstance(event, StepLogged) and event.step == 12
        for point in event.points
        if point.name == LEDGER_TRAINED_TRAJECTORIES.name
    ]
    counts = {point.labels["outcome"]: point.value for point in points}
    row = shown[shown.index("<i>trained on</i>") :].split("</tr>")[0]
    assert counts["success"] > 0
    assert counts["failure"] > 0
    for count in (*counts.values(), sum(counts.values())):
        assert f">{count:g}<" in row
