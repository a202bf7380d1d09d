"""Pause, changes and their marks, on the run's page."""

import json
from typing import Any

import pytest

from dashboard import charts
from dashboard.axes import Axis, Ruler
from dashboard.views.method_of import may_be_empty, method_of
from tests.dashboard import canned
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text

PACED = {
    "method": {"name": "pace", "num_prompts": 4, "target": 8},
    "environment": {"name": "calculator"},
}


def paced(**changes: Any) -> FakeApi:
    run = canned.run("r7k2m9qd", "paced", "running", PACED, step=64, cursor=640, **changes)
    return FakeApi([run])


def sent(fake: FakeApi) -> list[Any]:
    return [json.loads(r.content)["settings"] for r in fake.requests
            if r.method == "POST" and r.url.path.endswith("/controls")]  # fmt: skip


def test_a_run_is_paused_and_goes_on_again() -> None:
    fake = paced()
    tested = open_page(fake, "run", run="r7k2m9qd", tab="config")
    click(tested, "Pause")
    assert sent(fake) == [{"paused": True}]
    assert "A pause was asked for." in text(tested)
    fake.runs["r7k2m9qd"]["attempts"][-1]["activity"] = "paused"
    fake.runs["r7k2m9qd"]["cursor"] += 1
    tested.run()
    assert "Paused." in text(tested)
    click(tested, "Go on")
    assert sent(fake) == [{"paused": True}, {"paused": False}]


@pytest.mark.parametrize("run", ["r3f8h2xa", "r2n4n4nn"])
def test_a_run_that_has_ended_offers_nothing_to_change(run: str) -> None:
    tested = open_page(FakeApi(), "run", run=run, tab="controls")
    assert not {"Pause", "Go on", "Change"} & {button.label for button in tested.button}
    assert not tested.number_input or all(n.label == "Steps in all" for n in tested.number_input)
    assert "Nothing was changed while the run went on." in text(tested)


def test_the_settings_are_shown_and_only_what_differs_is_sent() -> None:
    fake = paced()
    tested = open_page(fake, "run", run="r7k2m9qd", tab="controls")
    fields = {each.label: each for each in tested.number_input}
    assert {name: each.value for name, each in fields.items()} == {
        "Max concurrent": 128, "Target": 8, "Gamma": 4.0,
    }  # fmt: skip
    fields["Gamma"].set_value(1.5)
    fields["Target"].set_value(12)
    click(tested, "Change")
    assert sent(fake) == [{"method.target": 12, "method.gamma": 1.5}]
    shown = text(tested)
    assert "target 8 → 12, gamma 4 → 1.5" in shown
    assert "waits for the driver" in shown
    assert {each.label: each.value for each in tested.number_input}["Target"] == 12


def test_the_field_for_concurrency_says_how_far_a_change_goes() -> None:
    tested = open_page(paced(), "run", run="r7k2m9qd", tab="controls")
    helps = {each.label: each.help for each in tested.number_input}
    assert (
        "`rollout.max_concurrent`. An engine's batch holds up to twice what"
        in helps["Max concurrent"]
    )
    assert helps["Target"] == "`method.target`"


@pytest.mark.parametrize("name", ["async_grpo", "sao"])
def test_a_bound_on_staleness_is_changed_and_lifted(name: str) -> None:
    method = {"name": name, "num_prompts": 4, "max_staleness": 2}
    config = PACED | {"method": method}
    fake = FakeApi([canned.run("r7k2m9qd", "bounded", "running", config, step=64, cursor=640)])
    for value, wanted in ((5, 5), (None, None)):
        tested = open_page(fake, "run", run="r7k2m9qd", tab="controls")
        fields = {each.label: each for each in tested.number_input}
        assert list(fields) == ["Max concurrent", "Max staleness"]
        fields["Max staleness"].set_value(value)
        click(tested, "Change")
        assert sent(fake)[-1] == {"method.max_staleness": wanted}


def test_what_may_be_empty_is_what_the_methods_own_settings_say() -> None:
    bounded = method_of({"method": {"name": "async_grpo", "max_staleness": 2}})
    assert may_be_empty(bounded, "method.max_staleness")
    assert not may_be_empty(bounded, "method.group_size")
    assert not may_be_empty(bounded, "rollout.max_staleness")
    assert not may_be_empty(None, "method.max_staleness")


def test_a_refused_change_is_told_with_its_reason() -> None:
    fake = paced()
    tested = open_page(fake, "run", run="r7k2m9qd", tab="controls")
    next(each for each in tested.number_input if each.label == "Target").set_value(2)
    click(tested, "Change")
    assert "below the batch of 4" in text(tested)


def changed_twice(fake: FakeApi) -> dict[str, Any]:
    made = [
        canned.change(1, {"method.target": 8}, {"method.target": 12}),
        canned.change(2, {"paused": False}, {"paused": True}, "superseded", why="A later one."),
        canned.change(3, {"method.gamma": 4.0}, {"method.gamma": 1.0}, version=20),
    ]
    return {**fake.controls_of("r7k2m9qd"), "changes": made}


def test_who_changed_what_and_when_is_a_table_and_rules_on_the_curves() -> None:
    fake = paced(num_changes=3)
    fake.controls["r7k2m9qd"] = changed_twice(fake)
    tested = open_page(fake, "run", run="r7k2m9qd", tab="controls")
    shown = text(tested)
    for words in ("target 8 → 12", "gamma 4 → 1", "superseded", "applied", "admin"):
        assert words in shown
    tested = open_page(fake, "run", run="r7k2m9qd", tab="overview")
    found = [json.loads(chart.proto.spec) for chart in tested.get("plotly_chart")]
    assert found
    for figure in found:
        [rule] = figure["layout"]["shapes"]
        [label] = figure["layout"]["annotations"]
        assert rule["x0"] == rule["x1"] == 20
        assert label["text"] == "changes 1, 3"  # the words are too long for the rule
        assert label["hovertext"] == "target 8 → 12, gamma 4 → 1"
    tested = open_page(fake, "run", run="r7k2m9qd", tab="overview", x="time")
    figure = json.loads(tested.get("plotly_chart")[0].proto.spec)
    places = {shape["x0"] for shape in figure["layout"]["shapes"]}
    assert places == {(104 - 20) / 60, (304 - 20) / 60}


def test_charts_that_stand_over_steps_on_every_axis_have_their_marks_at_the_version() -> None:
    fake = paced(num_changes=3)
    fake.controls["r7k2m9qd"] = changed_twice(fake)
    tested = open_page(fake, "run", run="r7k2m9qd", tab="staleness", x="time")
    found = [json.loads(chart.proto.spec)["layout"] for chart in tested.get("plotly_chart")]
    over_steps = [each for each in found if each["xaxis"]["title"]["text"] == Axis.STEP.caption]
    assert len(over_steps) == 2  # the heat map and the quantiles
    for layout in over_steps:
        assert {shape["x0"] for shape in layout["shapes"]} == {20}


def test_a_configuration_that_was_changed_on_the_way_says_so() -> None:
    words = "Some of it was changed while the run went on."
    fake = paced(num_changes=3)
    fake.controls["r7k2m9qd"] = changed_twice(fake)
    assert words in text(open_page(fake, "run", run="r7k2m9qd", tab="config"))
    del fake.controls["r7k2m9qd"]["changes"][2], fake.controls["r7k2m9qd"]["changes"][0]
    fake.controls["r7k2m9qd"]["changes"][0]["state"] = "applied"  # paused, and nothing else
    assert words not in text(open_page(fake, "run", run="r7k2m9qd", tab="config"))


def test_counts_by_staleness_have_no_rules() -> None:
    drawn = charts.bars({0: 3}, "policy versions", "tokens", "#0e8388")
    assert drawn.x_title != Ruler(Axis.STEP, None, None).title
