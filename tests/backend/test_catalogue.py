"""What can be run, for clients that are not Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lagoon.config import RunConfig
from lagoon.environments.reasoning_gym import ReasoningGym
from lagoon.metrics import CATALOGUE
from lagoon.models import MODELS
from tests.backend.api import Api, running_api

PRESET = """# GRPO on Sudoku
# Six blanks, one move a turn.
# Takes a minute.

environment: {name: sudoku4}
method: {name: grpo}
# not part of the description
"""


async def test_the_schema_is_the_one_that_runs_are_checked_with(api: Api) -> None:
    ada = await api.user()
    assert (await ada.get("/schemas/run-config")).json() == RunConfig.model_json_schema()


async def test_the_catalogue_describes_everything_that_can_be_chosen(api: Api) -> None:
    ada = await api.user()
    catalogue = (await ada.get("/catalogue")).json()
    methods = {method["name"]: method for method in catalogue["methods"]}
    assert {"grpo", "es"} <= set(methods)
    assert methods["es"]["family"] == "evolution"
    assert methods["grpo"]["paper"] == "2402.03300"
    assert "standardized" in methods["grpo"]["help"]
    assert methods["grpo"]["schema"]["properties"]["group_size"]["description"]
    assert {"calculator", "sudoku4", "reasoning_gym"} <= {
        environment["name"] for environment in catalogue["environments"]
    }
    assert [metric["name"] for metric in catalogue["metrics"]] == list(CATALOGUE)
    assert [model["path"] for model in catalogue["models"]] == [each.name for each in MODELS]


async def test_an_environment_whose_package_is_not_installed_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReasoningGym, "extra_package", "no_such_package")
    ada = await api.user()
    environments = (await ada.get("/catalogue")).json()["environments"]
    missing = {environment["name"]: environment["missing"] for environment in environments}
    assert missing["calculator"] == missing["sudoku4"] == ""
    assert missing["reasoning_gym"] == (
        "Its package no_such_package is not installed here. Install it with: make reasoning-gym"
    )


async def test_presets_are_files_whose_first_comment_describes_them(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "grpo-sudoku4.yaml").write_text(PRESET)
    (tmp_path / "broken.yaml").write_text("method: {name: grop}")
    (tmp_path / "worse.yaml").write_text("a: [")
    (tmp_path / "README.md").write_text("not a preset")
    async with running_api(database_url, tmp_path / "home", presets_dir=tmp_path) as api:
        ada = await api.user()
        [preset] = (await ada.get("/presets")).json()["items"]
    assert preset["name"] == "grpo-sudoku4"
    assert preset["title"] == "GRPO on Sudoku"
    assert preset["description"] == "Six blanks, one move a turn. Takes a minute."
    assert preset["yaml"] == PRESET
    assert preset["config"] == yaml.safe_load(PRESET)
    assert "broken.yaml" in caplog.text
    assert "worse.yaml" in caplog.text


async def test_the_api_describes_itself_with_one_name_for_each_operation(api: Api) -> None:
    ada = await api.user()
    paths = (await ada.get("/openapi.json")).json()["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(names) == len(set(names))
