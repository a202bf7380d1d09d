from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dashboard import fields
from dashboard.run_yaml import from_yaml, to_yaml
from lagoon.config import RunConfig
from lagoon.environments import ENVIRONMENTS
from lagoon.methods import METHODS
from tests.dashboard import canned

SCHEMA = RunConfig.model_json_schema()
FAMILIES = {cls.model_fields["name"].default: cls.family for cls in METHODS}
NAMES = [cls.model_fields["name"].default for cls in ENVIRONMENTS]


def form_for(config: dict[str, Any]) -> list[fields.FormSection]:
    method = config["method"]["name"]
    without = set() if FAMILIES[method] == "policy_gradient" else {"trainer"}
    chosen = {"method": method, "environment": config["environment"]["name"]}
    return fields.sections(SCHEMA, chosen, without)


def values_for(field: fields.FormField) -> st.SearchStrategy[Any]:
    """What a viewer could enter in a field."""
    low, high = field.minimum, field.maximum
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "integer": st.integers(int(low or 0), int(high if high is not None else 10_000)),
        "number": st.floats(low if low is not None else -5, high if high is not None else 50),
        "boolean": st.booleans(),
        "choice": st.sampled_from(field.choices or (None,)),
        "fixed": st.sampled_from(field.choices or (None,)),
        "text": st.text("abc /-", min_size=1, max_size=12),
        "json": st.dictionaries(st.text("xy", min_size=1), st.integers() | st.booleans()),
    }
    found = kinds[field.kind]
    return found | st.none() if field.is_nullable else found


@st.composite
def entered(draw: st.DrawFn) -> tuple[list[fields.FormSection], fields.Values]:
    config = {
        "method": {"name": draw(st.sampled_from(sorted(FAMILIES)))},
        "environment": {"name": draw(st.sampled_from(NAMES))},
    }
    form = form_for(config)
    values = fields.values_of(form, config)
    every = [field for section in form for field in section.fields]
    chosen = draw(st.lists(st.sampled_from(every), unique_by=lambda f: f.path, max_size=6))
    return form, values | {field.path: draw(values_for(field)) for field in chosen}


@settings(max_examples=150)
@given(entered())
def test_any_valid_configuration_survives_the_form(
    case: tuple[list[fields.FormSection], fields.Values],
) -> None:
    form, values = case
    try:
        valid = RunConfig.model_validate(fields.config_of(form, values))
    except ValidationError:
        return
    config = valid.model_dump(mode="json")
    assert fields.misfits(form, config) == []
    again = fields.config_of(form, fields.values_of(form, config), fields.extras_of(form, config))
    assert RunConfig.model_validate(again).model_dump(mode="json") == config
    assert RunConfig.model_validate(from_yaml(to_yaml(again))) == valid


@pytest.mark.parametrize("environment", NAMES)
@pytest.mark.parametrize("method", sorted(FAMILIES))
def test_the_defaults_of_every_method_and_environment_are_a_valid_run(
    method: str, environment: str
) -> None:
    config = {"method": {"name": method}, "environment": {"name": environment}}
    form = form_for(config)
    sent = fields.config_of(form, fields.values_of(form, config))
    assert RunConfig.model_validate(sent) == RunConfig.model_validate(config)


def test_every_setting_has_a_help_text() -> None:
    for method in FAMILIES:
        for environment in NAMES:
            form = form_for({"method": {"name": method}, "environment": {"name": environment}})
            bare = [f.path for s in form for f in s.fields if not f.help and f.kind != "fixed"]
            assert bare == []


def test_evolution_has_no_trainer_section() -> None:
    assert "trainer" not in {section.name for section in form_for(canned.ES)}
    assert "trainer" in {section.name for section in form_for(canned.GRPO)}


def test_keys_without_a_field_are_kept_and_sent() -> None:
    config = {**canned.GRPO, "seeed": 3, "budget": {"max_steps": 7, "max_stepz": 9}}
    form = form_for(config)
    extras = fields.extras_of(form, config)
    assert extras == {"seeed": 3, "budget": {"max_stepz": 9}}
    sent = fields.config_of(form, fields.values_of(form, config), extras)
    assert sent["seeed"] == 3
    assert sent["budget"] == {
        "max_steps": 7,
        "max_seconds": None,
        "max_restarts": 3,
        "stall_seconds": 1800.0,
        "max_stepz": 9,
    }


def test_values_that_no_widget_can_show_are_named() -> None:
    config = {
        "method": {"name": "grpo", "group_size": "many", "num_prompts": 100_000},
        "environment": {"name": "calculator"},
        "budget": 3,
    }
    wrong = fields.misfits(form_for(config), config)
    assert wrong == ["method.num_prompts", "method.group_size", "budget"]


def test_docstrings_become_running_text() -> None:
    assert fields.clean("One line\nbroken.\n\nSecond ``x``.") == "One line broken.\n\nSecond `x`."
