"""Every preset is a run that can be started as it is."""

from pathlib import Path

import pytest
import yaml

from lagoon.config import RunConfig

PRESETS = sorted((Path(__file__).resolve().parents[2] / "presets").iterdir())


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.name)
def test_a_preset_is_a_valid_run(path: Path) -> None:
    config = RunConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.name)
def test_a_preset_has_a_title_in_its_first_comment(path: Path) -> None:
    assert path.suffix == ".yaml"
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_there_are_presets() -> None:
    assert PRESETS
