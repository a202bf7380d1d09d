"""Resume and fork from the run's page."""

import json

import pytest

from dashboard.views.run_resume import lineage
from tests.dashboard import canned
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text


def body_of(fake: FakeApi, path: str) -> dict:
    [request] = [each for each in fake.requests if each.url.path.endswith(path)]
    return json.loads(request.content)


def test_a_stopped_run_is_resumed_from_the_newest_or_from_a_checkpoint_by_choice() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run="r2n4n4nn", tab="config")
    choice = next(each for each in tested.selectbox if each.label == "From")
    assert choice.options == [
        "the newest that is whole",
        "step 60, its last weights, 17 MB",
        "step 40, the best so far, 17 MB",
    ]
    choice.set_value(40).run()
    click(tested, "Resume grpo-diverged")
    assert body_of(fake, "/resume") == {"checkpoint_id": 40}


def test_a_run_without_a_checkpoint_says_that_it_would_begin_anew() -> None:
    tested = open_page(FakeApi(), "run", run="r5b6c7de", tab="config")
    assert "has no checkpoint. It begins anew" in text(tested)


def test_a_finished_run_is_forked_with_more_steps() -> None:
    fake = FakeApi()
    tested = open_page(fake, "run", run="r3f8h2xa", tab="config")
    assert not any(button.key == "confirm_resume" for button in tested.button)
    tested.number_input[0].set_value(300).run()
    tested.text_input[0].set_value("further").run()
    click(tested, "Fork es-sudoku4")
    sent = body_of(fake, "/fork")
    assert (sent["checkpoint_id"], sent["name"]) == (100, "further")
    assert sent["config"]["budget"]["max_steps"] == 300


@pytest.mark.parametrize("run", ["r7k2m9qd", "r9q4w1zz"])
def test_a_run_that_is_not_over_offers_neither(run: str) -> None:
    tested = open_page(FakeApi(), "run", run=run, tab="config")
    assert not {"confirm_resume", "confirm_fork"} & {button.key for button in tested.button}


def test_a_runs_lineage_is_told_in_a_few_words() -> None:
    first = canned.running()["attempts"][0]
    second = {**first, "number": 2, "is_restart": True, "resumed_step": 40}
    run = {**canned.running(), "attempts": [first, second]}
    assert lineage(run) == "1 restart, went on from step 40"
    assert lineage(canned.running()) == ""
    fork = {**canned.running(), "parent_run_id": "r3f8h2xa", "parent_step": 100}
    assert lineage(fork) == "a fork of r3f8h2xa at step 100"
