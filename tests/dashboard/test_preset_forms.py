"""Every preset, as it is shipped, starts a run from the form."""

import json
from pathlib import Path

import pytest

from backend.catalogue.presets import presets
from lagoon.config import RunConfig
from lagoon.methods import METHODS
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import click, open_page, text

SHIPPED = presets(Path(__file__).resolve().parents[2] / "presets")


def with_presets() -> FakeApi:
    fake = FakeApi()
    fake.presets = [preset.model_dump(mode="json") for preset in SHIPPED]
    return fake


@pytest.mark.parametrize("preset", SHIPPED, ids=lambda preset: preset.name)
def test_a_preset_is_launched_from_the_form_as_it_is(preset) -> None:  # type: ignore[no-untyped-def]
    fake = with_presets()
    tested = open_page(fake, "launch")
    click(tested, f"Use {preset.title}")
    assert not tested.exception
    shown = text(tested)
    assert "The form cannot show" not in shown
    assert "have no field in this form" not in shown
    click(tested, "Launch")
    (sent,) = [
        json.loads(request.content)
        for request in fake.requests
        if request.method == "POST" and request.url.path == "/api/v1/runs"
    ]
    assert sent["name"] == preset.name
    assert RunConfig.model_validate(sent["config"]) == RunConfig.model_validate(preset.config)


def test_every_method_has_a_preset() -> None:
    named = {preset.config["method"]["name"] for preset in SHIPPED}
    assert named == {cls.model_fields["name"].default for cls in METHODS}


@pytest.mark.parametrize("preset", SHIPPED, ids=lambda preset: preset.name)
def test_a_preset_says_in_two_short_lines_what_it_is(preset) -> None:  # type: ignore[no-untyped-def]
    assert len(preset.title) <= 40
    assert 40 <= len(preset.description) <= 110
    assert preset.description.endswith(".")
