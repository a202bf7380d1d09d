import math
from dataclasses import replace

import pytest

from dashboard.drift_words import Drifted, lag_verdict, mismatch_verdict, unknown_words
from dashboard.views.critic import critic_words
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page, text
from tests.dashboard.recorded import record, with_run
from tests.dashboard.test_pages import run_page

FINE = Drifted(7, True, 400, kl=1e-6, effective_samples=0.999, clipped=0.0, masked=0.0)


@pytest.mark.parametrize(
    ("found", "sentence", "kind"),
    [
        (None, "Nothing to compare yet.", ""),
        (FINE, "Engine and trainer agree.", ""),
        (replace(FINE, kl=2e-3), "Engine and trainer differ a little.", ""),
        (replace(FINE, kl=0.02), "Engine and trainer disagree about the same weights.", "warn"),
    ],
)
def test_a_mismatch_is_judged_by_its_divergence(
    found: Drifted | None, sentence: str, kind: str
) -> None:
    said = mismatch_verdict(found)
    assert (said[0], said[2]) == (sentence, kind)


@pytest.mark.parametrize(
    ("found", "sentence", "kind"),
    [
        (None, "Nothing stale was trained on at the newest step.", ""),
        (replace(FINE, is_newest=False), "Nothing stale was trained on at the newest step.", ""),
        (replace(FINE, effective_samples=0.9), "Older tokens are still close to the policy.", ""),
        (
            replace(FINE, effective_samples=0.7),
            "The policy has moved away from what sampled the older tokens.",
            "",
        ),
        (
            replace(FINE, effective_samples=0.4),
            "Much of what the older tokens could teach is lost.",
            "warn",
        ),
        (replace(FINE, masked=0.3), "Much of what the older tokens could teach is lost.", "warn"),
    ],
)
def test_lag_is_judged_by_what_is_left_of_the_older_tokens(
    found: Drifted | None, sentence: str, kind: str
) -> None:
    said = lag_verdict(found)
    assert (said[0], said[2]) == (sentence, kind)


def test_no_lag_is_claimed_of_tokens_alone_whose_version_is_known() -> None:
    assert lag_verdict(None)[1].startswith("All of its tokens were sampled by")
    assert lag_verdict(None, 12)[0].startswith("No stale token could be compared")


def test_figures_of_an_earlier_step_are_said_to_be_that() -> None:
    assert (
        "Step 7, the last that had any: 400 tokens"
        in mismatch_verdict(replace(FINE, is_newest=False))[1]
    )
    assert "Step 7: 400 tokens" in mismatch_verdict(FINE)[1]


def test_tokens_of_neither_cause_are_counted() -> None:
    assert "12 tokens" in unknown_words(12)
    assert unknown_words(0) == "Every token of the newest step is in one of the two."


@pytest.mark.parametrize("method", ["async_grpo", "pace"])
def test_both_causes_stand_side_by_side_figure_by_figure(method: str) -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record(method)), tab="drift")
    assert not tested.exception
    shown = text(tested)
    assert "Mismatch: the same version, two programs" in shown
    assert "Lag: older versions" in shown
    assert "Engine and trainer agree." in shown
    drawn = "".join(map(str, tested.get("plotly_chart")))
    for cause in ("mismatch", "lag"):
        for figure in ("kl", "ratio", "samples", "cut"):
            assert f"chart_{figure}_{cause}" in drawn


def test_a_synchronous_run_has_no_lag() -> None:
    fake = FakeApi()
    shown = text(open_page(fake, "run", run=with_run(fake, record("grpo")), tab="drift"))
    assert "Nothing stale was trained on at the newest step." in shown


@pytest.mark.parametrize(
    ("state", "words"), [("finished", "No drift here."), ("queued", "No drift measured yet.")]
)
def test_a_run_without_drift_says_why(state: str, words: str) -> None:
    tested = run_page("running" if state == "queued" else state, "drift", _without_drift(state))
    assert not tested.exception
    assert words in text(tested)


def _without_drift(state: str) -> FakeApi:
    fake = FakeApi()
    if state == "queued":
        fake.series["r7k2m9qd"] = []
    return fake


@pytest.mark.parametrize(
    ("step", "warmup", "explained", "sentence", "figures"),
    [
        (4, 10, 0.1, "Warm-up: the critic is trained alone for 6 more steps.", "Until step 10"),
        (9, 10, 0.1, "Warm-up: the critic is trained alone for 1 more step.", "explain 0.1"),
        (10, 10, -0.2, "Critic and policy are both trained, since step 11.", "add noise"),
        (3, 0, math.nan, "Critic and policy are both trained, since the first step.", "not known"),
    ],
)
def test_the_critics_warm_up_and_what_it_explains_are_said(
    step: int, warmup: int, explained: float, sentence: str, figures: str
) -> None:
    said = critic_words(step, warmup, explained)
    assert said[0] == sentence
    assert figures in said[1]


def test_a_run_with_a_critic_shows_it_above_the_rest_and_others_do_not() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run=with_run(fake, record("sao")), tab="learning")
    assert not tested.exception
    assert "Critic and policy are both trained, since step 5." in text(tested)
    assert "Explained variance" in text(tested)
    assert "Critic" not in text(run_page("running", "learning"))
