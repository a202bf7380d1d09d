"""A run configuration as YAML, both ways."""

from typing import Any

import yaml

from dashboard.records import Config


class NotYaml(ValueError):
    """The text is not YAML, or not a mapping. The message says where."""


class _Dumper(yaml.SafeDumper):
    """Plain block style, in the order of the configuration."""


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    # YAML 1.1 reads 1e-06 as text; 1.0e-06 is a number.
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _float)


def to_yaml(config: Config) -> str:
    """The configuration as text."""
    return str(yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=88))


def from_yaml(text: str) -> Config:
    """The configuration that the text holds. Raises ``NotYaml`` with the line of the mistake."""
    try:
        value: Any = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise NotYaml(f"Not YAML{where}: {error.problem or 'cannot be read'}.") from error
    except yaml.YAMLError as error:
        raise NotYaml("Not YAML: it holds characters that cannot be read.") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotYaml("A configuration is a mapping: lines of the form “key: value”.")
    return {str(key): part for key, part in value.items()}
