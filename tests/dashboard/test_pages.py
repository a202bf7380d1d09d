from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lagoon.metrics import HELDOUT_SUCCESS
from tests.dashboard import canned, canned_series
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text

TABS = (
    "overview", "staleness", "pool", "es", "learning", "trajectories", "config", "logs", "events",
)  # fmt: skip
RUNS = {
    "running": "r7k2m9qd",
    "finished": "r3f8h2xa",
    "queued": "r9q4w1zz",
    "failed": "r5b6c7de",
    "nan": "r2n4n4nn",
}


def paths(fake: FakeApi) -> list[str]:
    return [request.url.path for request in fake.requests]


def run_page(state: str, tab: str = "overview", fake: FakeApi | None = None) -> AppTest:
    return open_page(fake or FakeApi(), "run", run=RUNS[state], tab=tab)


@pytest.mark.parametrize(
    ("state", "tab"),
    [
        *(("running", tab) for tab in TABS),
        *((state, tab) for state in ("queued", "nan") for tab in ("overview", "learning", "logs")),
        *((state, tab) for state in ("finished", "failed") for tab in ("overview", "staleness")),
    ],
)
def test_a_run_can_be_looked_at_in_every_state(state: str, tab: str) -> None:
    tested = run_page(state, tab)
    assert not tested.exception
    assert "lg-notice bad" not in text(tested) or state == "nan"


@pytest.mark.parametrize("page", ["experiments", "launch", "queue", "storage", "experiment", "run"])
def test_an_empty_account_sees_a_sentence_and_no_error(page: str) -> None:
    tested = open_page(FakeApi([]), page)
    assert not tested.exception
    assert "lg-notice bad" not in text(tested)


@pytest.mark.parametrize("page", ["experiments", "launch", "queue", "storage", "experiment", "run"])
def test_with_the_api_down_a_sentence_says_so(page: str) -> None:
    fake = FakeApi()
    fake.is_down = True
    tested = open_page(fake, page)
    assert not tested.exception
    assert "Nothing answers at http://api.test" in text(tested)


def test_with_postgres_down_the_page_names_it() -> None:
    fake = FakeApi()
    fake.is_database_down = True
    tested = open_page(fake)
    assert "PostgreSQL, where everything is stored, is not available" in text(tested)
    assert not tested.exception


def test_a_part_that_is_down_is_named_above_a_page_that_can_be_read() -> None:
    fake = FakeApi()
    fake.down["ray"] = "The workers cannot reach Ray."
    shown = text(open_page(fake))
    assert "Ray, which runs the training, is not available: The workers cannot reach Ray." in shown
    assert "grpo-calculator" in shown


def test_a_visitor_without_a_session_sees_only_the_sign_in_form() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", signed_in=False, run=RUNS["running"])
    assert [field.label for field in tested.text_input] == ["User name", "Password"]
    assert set(paths(fake)) == {"/api/v1/me"}


def test_the_cookie_of_a_revoked_session_counts_as_none() -> None:
    fake = FakeApi()
    fake.is_signed_in = False
    assert [field.label for field in open_page(fake).text_input] == ["User name", "Password"]


def test_a_wrong_password_is_said_in_words() -> None:
    tested = open_page(FakeApi(), signed_in=False)
    tested.text_input[0].input("admin")
    tested.text_input[1].input("wrong")
    click(tested, "Sign in")
    assert "do not match" in text(tested)


def test_the_right_password_sends_the_browser_for_its_cookie() -> None:
    tested = open_page(FakeApi(), signed_in=False)
    tested.text_input[0].input("admin")
    tested.text_input[1].input("open water")
    click(tested, "Sign in")
    assert "window.location.replace" in text(tested)
    assert "/api/v1/signin?ticket=one-time&next=" in text(tested)


def test_a_used_link_is_explained() -> None:
    shown = text(open_page(FakeApi(), signed_in=False, signin="expired"))
    assert "was used or has expired" in shown


def test_signing_out_ends_the_session_in_the_api() -> None:
    fake = FakeApi()
    tested = open_page(fake)
    click(tested, "Sign out")
    assert not fake.is_signed_in
    assert [field.label for field in tested.text_input] == ["User name", "Password"]


def test_the_list_names_every_run_with_its_state_and_reason() -> None:
    shown = text(open_page(FakeApi()))
    for name in ("grpo-calculator", "es-sudoku4", "es-waits", "grpo-broken", "grpo-diverged"):
        assert name in shown
    assert "Needs 2 CPUs, 0 free: run grpo-calculator (r7k2m9qd) holds 2 until" in shown
    assert "31.2 % → 62.1 %" in shown


def test_times_are_in_the_viewers_zone() -> None:
    shown = text(open_page(FakeApi()))
    assert "03 Aug, 11:30" in shown
    assert 'title="2026-08-03 09:30:00 UTC"' in shown


def test_an_experiment_shows_notes_runs_and_two_overlaid_charts() -> None:
    tested = open_page(FakeApi(), "experiment", experiment="e1demo")
    assert "policy gradient" in text(tested)
    assert len(tested.get("plotly_chart")) == 2
    assert not tested.exception


def test_an_experiment_with_more_runs_than_are_listed_counts_all_of_them() -> None:
    fake = FakeApi([canned.finished() | {"id": f"r{n}"} for n in range(100)])
    fake.experiments["e1demo"]["num_runs"] = 123
    shown = text(open_page(fake, "experiment", experiment="e1demo"))
    assert "123 runs" in shown
    assert "The newest 100 of 123 are listed." in shown


def test_an_experiment_that_does_not_exist_is_said_so() -> None:
    assert "There is nothing here" in text(open_page(FakeApi(), "experiment", experiment="nope"))


def test_a_run_that_does_not_exist_is_said_so() -> None:
    assert "There is nothing here" in text(open_page(FakeApi(), "run", run="nope"))


def test_unknown_tab_and_axis_in_the_url_fall_back() -> None:
    tested = open_page(FakeApi(), "run", run=RUNS["running"], tab="<script>", x="parsecs")
    assert not tested.exception
    assert len(tested.get("plotly_chart")) == 4


def test_the_title_of_a_run_is_never_markup() -> None:
    run = canned.running() | {"name": "<img src=x onerror=alert(1)>"}
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert "<img" not in shown
    assert "&lt;img" in shown


def test_a_synchronous_run_says_why_its_staleness_is_zero() -> None:
    shown = text(run_page("running", "staleness"))
    assert "have staleness 0." in shown
    assert "GRPO (synchronous) waits" in shown


def test_stale_tokens_are_summed_up_in_a_sentence() -> None:
    shown = text(run_page("running", "staleness", FakeApi(stale=True)))
    assert "Trained tokens lag by" in shown


def test_the_staleness_tab_draws_every_histogram_of_the_account() -> None:
    tested = run_page("running", "staleness")
    drawn = "".join(map(str, tested.get("plotly_chart")))
    for name in ("total", "generation", "waiting", "worst", "span"):
        assert f"bars_{name}" in drawn


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "first evaluation; the next at step 10"),
        ({"max_steps": 4}, "first evaluation; the next at step 4"),
        ({"status": "stopped"}, "the only evaluation"),
    ],
)
def test_one_evaluation_is_not_compared_with_itself(changes: dict[str, Any], words: str) -> None:
    run = canned.running() | {"step": 3, "last_heldout_success": 0.312} | changes
    fake = FakeApi([run])
    fake.series[run["id"]] = [canned_series.one_series(HELDOUT_SUCCESS, {0: 0.312})]
    shown = text(open_page(fake, "run", run=run["id"]))
    assert words in shown
    assert "+0.0 points" not in shown


def test_evolution_has_no_pool_and_gradients_no_sigma_and_both_say_so() -> None:
    assert "Evolution strategies have no pool" in text(run_page("finished", "pool"))
    assert "sigma belongs to evolution" in text(run_page("running", "es"))


def test_an_es_run_shows_four_charts_of_its_own() -> None:
    assert len(run_page("finished", "es").get("plotly_chart")) == 4


def test_the_first_nan_is_named_in_the_head() -> None:
    assert "First NaN: trainer/loss at step 41." in text(run_page("nan", "config"))


def test_weights_that_did_not_arrive_are_an_alarm_in_the_head() -> None:
    run = canned.running() | {"first_mismatch": {"attempt": 2, "step": 17}}
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert "Weights did not arrive: version 17, attempt 2." in shown
    assert "Weights did not arrive" not in text(run_page("running"))


def test_a_failed_run_gives_its_cause_and_its_traceback() -> None:
    tested = run_page("failed")
    shown = text(tested)
    assert "The environment calculator raised ZeroDivisionError: division by zero." in shown
    assert "Traceback (most recent call last)" in shown


def test_a_silent_run_is_called_unresponsive_and_not_failed() -> None:
    condition = {"condition": "unresponsive", "condition_since": canned.iso(90)}
    run = canned.running() | condition
    shown = text(open_page(FakeApi([run]), "run", run=run["id"]))
    assert "Its driver is silent; Ray has not said that it ended." in shown
    assert "This is not a failure." in shown
    listed = text(open_page(FakeApi([run]), "experiment", experiment=run["experiment_id"]))
    assert "unresponsive" in listed


def test_only_the_open_tab_asks_the_api() -> None:
    fake = FakeApi()
    run_page("running", "config", fake)
    assert not [p for p in paths(fake) if p.endswith(("/trajectories", "/log", "/histograms"))]


def test_the_overview_reads_its_series_in_few_requests() -> None:
    fake = FakeApi()
    run_page("running", "overview", fake)
    assert len([p for p in paths(fake) if p.endswith("/metrics")]) <= 2


def test_trajectories_show_tool_calls_waits_and_rewards() -> None:
    shown = text(run_page("running", "trajectories"))
    for part in ("call 3+4", "answered after 412 ms", "reward 1", "cut by a limit", "held-out"):
        assert part in shown


def test_trajectories_can_be_filtered() -> None:
    tested = open_page(
        FakeApi(), "run", run=RUNS["running"], tab="trajectories", outcome="failure",
    )  # fmt: skip
    assert ">success<" not in text(tested)
    assert ">failure<" in text(tested)


def test_the_configuration_is_shown_whole() -> None:
    tested = run_page("running", "config")
    assert "learning_rate_schedule: constant" in tested.code[0].value


def test_the_log_shows_its_tail() -> None:
    assert "step 40 reward 0.600" in run_page("running", "logs").code[0].value


def test_events_give_reasons() -> None:
    shown = text(run_page("finished", "events"))
    assert "The driver took its first step." in shown


def test_stopping_asks_first_and_names_the_run() -> None:
    fake = FakeApi()
    tested = run_page("running", "config", fake)
    click(tested, "Stop")
    assert "/api/v1/runs/r7k2m9qd/stop" not in paths(fake)
    assert "Stop grpo-calculator" in [button.label for button in tested.button]
    assert "has done 64 of 100 steps" in text(tested)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("queued", "has not started. It leaves the queue; there is nothing to save."),
        ("starting", "is starting and has trained nothing yet."),
    ],
)
def test_stopping_a_run_that_has_not_trained_promises_no_weights(status: str, words: str) -> None:
    run = canned.queued() | {"status": status}
    tested = open_page(FakeApi([run]), "run", run=run["id"], tab="config")
    click(tested, "Stop")
    assert words in text(tested)
    assert "It saves its weights" not in text(tested)


def test_a_finished_run_cannot_be_stopped() -> None:
    labels = [button.label for button in run_page("finished").button]
    assert "Stop" not in labels
    assert "Clone" in labels


def test_the_storage_page_shows_bytes_by_run_and_kind_and_of_the_home() -> None:
    tested = open_page(FakeApi(), "storage")
    assert not tested.exception
    shown = text(tested)
    for words in ("2.4 GB", "of 10 GB allowed", "81 GB", "of 250 GB", "5 runs of everybody"):
        assert words in shown
    assert 'href="run?run=r7k2m9qd"' in shown


def test_what_is_missing_of_a_run_is_said_where_one_would_look_for_it() -> None:
    fake = FakeApi()
    fake.runs[RUNS["running"]]["missing"] = canned.thinned()
    head = "Its driver dropped: 3\u202f200 metric points, 412 trajectory texts."
    log = text(run_page("running", "logs", fake))
    assert head in log
    assert "12\u202f000 older lines of the log were removed by retention." in log
    shown = text(run_page("running", "trajectories", fake))
    assert "1 older trajectory was removed by retention." in shown
    assert "412 trajectory texts were dropped by the driver for lack of room." in shown
    assert "removed by retention" not in text(run_page("running", "overview", fake))
