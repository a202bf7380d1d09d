"""What README.md says that can be compared with what is there."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def differing(excerpt: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """What the excerpt says otherwise than the whole."""
    return {
        section: values
        for section, values in excerpt.items()
        if not values.items() <= whole.get(section, {}).items()
    }


def test_the_excerpt_of_a_preset_says_what_the_preset_says():
    [(name, text)] = re.findall(r"```yaml\n# (presets/\S+), shortened\n(.+?)```", README, re.DOTALL)
    assert differing(yaml.safe_load(text), yaml.safe_load((ROOT / name).read_text())) == {}


def test_every_file_it_names_is_there():
    named = set(re.findall(r"(?<![\w./])[a-z]+/[\w/.-]+\.[a-z]+\b", README))
    assert {"presets/grpo-calculator.yaml", "dashboard/settings.py"} <= named
    named = {name for name in named if "NAME" not in name}
    assert {name for name in named if not (ROOT / name).is_file()} == set()
