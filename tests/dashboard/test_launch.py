import json

import pytest
from streamlit.testing.v1 import AppTest

from lagoon.config import RunConfig
from tests.dashboard import canned
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text


def sent_yaml(tested: AppTest) -> str:
    return str(tested.code[-1].value)


def created(fake: FakeApi) -> list[dict[str, object]]:
    return [
        json.loads(r.content)
        for r in fake.requests
        if r.method == "POST" and r.url.path == "/api/v1/runs"
    ]


def set_number(tested: AppTest, label: str, value: float | None) -> None:
    next(field for field in tested.number_input if field.label == label).set_value(value).run()


def choose(tested: AppTest, label: str, value: str) -> None:
    next(field for field in tested.selectbox if field.label == label).set_value(value).run()


def test_the_form_starts_from_the_first_preset_and_shows_what_is_sent() -> None:
    tested = open_page(FakeApi(), "launch")
    assert not tested.exception
    assert "name: grpo" in sent_yaml(tested)
    assert "learning_rate: 0.0001" in sent_yaml(tested)


def test_what_is_changed_in_the_form_is_what_is_sent() -> None:
    fake = FakeApi()
    tested = open_page(fake, "launch")
    set_number(tested, "Group size", 4)
    assert "group_size: 4" in sent_yaml(tested)
    click(tested, "Launch")
    (body,) = created(fake)
    assert body["name"] == "grpo-calculator"
    assert RunConfig.model_validate(body["config"]).method.group_size == 4  # type: ignore[attr-defined]


def test_a_field_that_may_be_empty_can_be_emptied_again() -> None:
    """A bound that a preset sets is lifted in the form."""
    fake = FakeApi()
    method = {"name": "async_grpo", "num_prompts": 2, "group_size": 2, "max_staleness": 4}
    fake.presets[0]["config"] = fake.presets[0]["config"] | {"method": method}
    tested = open_page(fake, "launch")
    for value, wanted in ((None, "null"), (2, "2"), (None, "null")):
        set_number(tested, "Max staleness", value)
        assert f"max_staleness: {wanted}" in sent_yaml(tested)
        assert next(f for f in tested.number_input if f.label == "Max staleness").value == value
    assert next(f for f in tested.number_input if f.label == "Group size").value == 2


def test_an_environment_that_is_not_installed_says_so_when_it_is_chosen() -> None:
    tested = open_page(FakeApi(), "launch")
    assert "make it" not in text(tested)
    choose(tested, "Environment", "reasoning_gym")
    assert "Reasoning Gym may fail." in text(tested)
    assert "Install it with: make it" in text(tested)


def test_launching_opens_the_runs_page() -> None:
    tested = open_page(FakeApi(), "launch")
    click(tested, "Launch")
    assert tested.query_params["run"] == "rnew1"
    assert "lg-title" in text(tested)


def test_a_double_click_makes_one_run() -> None:
    fake = FakeApi()
    tested = open_page(fake, "launch")
    draft = tested.session_state["_draft"]
    key = draft.idempotency_key(None)
    click(tested, "Launch")
    sent = [r.headers["Idempotency-Key"] for r in fake.requests if "Idempotency-Key" in r.headers]
    assert sent == [key]
    assert draft.is_sent


def test_choosing_evolution_drops_the_trainer_and_shows_its_own_fields() -> None:
    tested = open_page(FakeApi(), "launch")
    choose(tested, "Method", "es")
    assert not tested.exception
    assert "population: 30" in sent_yaml(tested)
    assert "learning_rate" not in sent_yaml(tested)
    assert "Population" in [field.label for field in tested.number_input]


@pytest.mark.parametrize(
    ("label", "value", "words", "fields"),
    [
        ("Group size", 1, "group of 1 has no spread", ("method.name", "method.group_size")),
        (
            "Num operations",
            7,
            "is too short for num_operations 7",
            ("environment.num_operations", "environment.max_turns"),
        ),
    ],
)
def test_a_clash_stands_beside_both_fields(
    label: str, value: int, words: str, fields: tuple[str, str]
) -> None:
    tested = open_page(FakeApi(), "launch")
    set_number(tested, label, value)
    click(tested, "Check")
    shown = text(tested)
    assert shown.count("lg-field-error") == 2
    assert words in shown
    for field in fields:
        assert f"clashes with {field}" in shown


def test_a_good_check_says_so_and_a_change_makes_it_old() -> None:
    tested = open_page(FakeApi(), "launch")
    click(tested, "Check")
    assert "This configuration can run." in text(tested)
    set_number(tested, "Group size", 4)
    assert "Changed since the last check." in text(tested)


def test_a_refused_launch_stays_on_the_page_with_the_reason() -> None:
    fake = FakeApi()
    tested = open_page(fake, "launch")
    set_number(tested, "Group size", 1)
    click(tested, "Launch")
    assert "group of 1 has no spread" in text(tested)
    assert not fake.created


def test_cloning_starts_from_the_runs_configuration() -> None:
    tested = open_page(FakeApi(), "launch", clone="r3f8h2xa")
    assert tested.text_input[0].value == "es-sudoku4-again"
    assert "population: 30" in sent_yaml(tested)


def test_another_family_of_methods_brings_its_own_temperature() -> None:
    tested = open_page(FakeApi(), "launch", clone="r7k2m9qd")
    assert "temperature: 1.0" in sent_yaml(tested)
    choose(tested, "Method", "es")
    assert "temperature: null" in sent_yaml(tested)
    click(tested, "Check")
    assert "This configuration can run." in text(tested)


def test_another_method_brings_its_own_way_with_what_is_in_flight() -> None:
    tested = open_page(FakeApi(), "launch", clone="r7k2m9qd")
    choose(tested, "Method", "async_grpo")
    choose(tested, "Weight update mode", "wait")
    assert "weight_update_mode: wait" in sent_yaml(tested)
    choose(tested, "Method", "grpo")
    assert "weight_update_mode: null" in sent_yaml(tested)
    click(tested, "Check")
    assert "This configuration can run." in text(tested)


def test_cloning_what_is_not_there_says_so() -> None:
    tested = open_page(FakeApi(), "launch", clone="nope")
    assert not tested.exception
    assert "cannot be cloned" in text(tested)


def test_a_preset_replaces_the_whole_configuration() -> None:
    tested = open_page(FakeApi(), "launch")
    click(tested, "Use ES on 4×4 Sudoku")
    assert "name: sudoku4" in sent_yaml(tested)
    assert tested.text_input[0].value == "es-sudoku4"


def edit_as_yaml(tested: AppTest, yaml: str) -> None:
    tested.segmented_control[0].set_value("yaml").run()
    tested.text_area[0].set_value(yaml).run()


def test_yaml_is_sent_as_typed_and_turns_into_the_form() -> None:
    tested = open_page(FakeApi(), "launch")
    edit_as_yaml(tested, "method: {name: grpo, group_size: 5}\nenvironment: {name: sudoku4}\n")
    assert "group_size: 5" in sent_yaml(tested)
    tested.segmented_control[0].set_value("form").run()
    assert not tested.exception
    assert "group_size: 5" in sent_yaml(tested)
    assert next(f for f in tested.number_input if f.label == "Group size").value == 5
    assert next(f for f in tested.selectbox if f.label == "Environment").value == "sudoku4"


def test_the_form_turns_into_yaml() -> None:
    tested = open_page(FakeApi(), "launch")
    set_number(tested, "Group size", 6)
    tested.segmented_control[0].set_value("yaml").run()
    assert "group_size: 6" in str(tested.text_area[0].value)


def test_an_unknown_key_in_yaml_reaches_the_check_with_its_hint() -> None:
    tested = open_page(FakeApi(), "launch")
    edit_as_yaml(tested, "method: {name: grpo}\nenvironment: {name: sudoku4}\nseeed: 3\n")
    click(tested, "Check")
    assert "did you mean" in text(tested).lower()
    tested.segmented_control[0].set_value("form").run()
    assert "seeed: 3" in sent_yaml(tested)


def test_broken_yaml_cannot_be_sent() -> None:
    tested = open_page(FakeApi(), "launch")
    edit_as_yaml(tested, "method: [")
    assert "Not YAML" in text(tested)
    assert next(b for b in tested.button if b.label == "Launch").disabled


def test_yaml_that_no_form_can_show_is_sent_back_to_the_editor() -> None:
    tested = open_page(FakeApi(), "launch")
    edit_as_yaml(tested, "method: {name: grpo, group_size: many}\nenvironment: {name: sudoku4}\n")
    tested.segmented_control[0].set_value("form").run()
    assert not tested.exception
    assert "The form cannot show method.group_size." in text(tested)


def test_json_that_cannot_be_read_is_said_beside_its_field() -> None:
    tested = open_page(FakeApi(), "launch")
    choose(tested, "Environment", "reasoning_gym")
    tested.text_area[0].set_value("{").run()
    assert "Not JSON" in text(tested)
    assert next(b for b in tested.button if b.label == "Launch").disabled


def test_without_presets_there_is_still_a_form() -> None:
    fake = FakeApi()
    fake.presets = []
    tested = open_page(fake, "launch")
    assert not tested.exception
    assert RunConfig.model_validate(canned.GRPO)
    assert "method:" in sent_yaml(tested)


def test_a_method_that_does_not_exist_is_not_replaced_in_silence() -> None:
    tested = open_page(FakeApi(), "launch")
    edit_as_yaml(tested, "method: {name: grpp}\nenvironment: {name: sudoku4}\n")
    tested.segmented_control[0].set_value("form").run()
    assert "The form knows no method called &#x27;grpp&#x27;" in text(tested)
    assert "name: grpp" in sent_yaml(tested)
