"""Presets: YAML files whose first comment lines are their title and description."""

from __future__ import annotations

import logging
from pathlib import Path

import yaml
from pydantic import ValidationError

from backend.catalogue.schemas import PresetOut
from lagoon.config import RunConfig

logger = logging.getLogger(__name__)


def presets(folder: Path) -> list[PresetOut]:
    """The presets in ``folder``, by name. A file that is no run configuration is left out."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found.append(parsed(path.stem, path.read_text(encoding="utf-8")))
        except (ValidationError, yaml.YAMLError, ValueError) as error:
            logger.warning("preset %s is left out: %s", path.name, error)
    return found


def parsed(name: str, text: str) -> PresetOut:
    """The preset in ``text``.

    Raises ``ValidationError`` or ``yaml.YAMLError`` when it is not a run configuration.
    """
    config = yaml.safe_load(text)
    RunConfig.model_validate(config)
    title, *description = _first_comment(text) or [name]
    return PresetOut(
        name=name, title=title, description=" ".join(description), yaml=text, config=config
    )


def _first_comment(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return [line for line in lines if line]
