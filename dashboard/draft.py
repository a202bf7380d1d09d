"""The run being written on the launch page: kept in the browser session, sent exactly once."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field

from dashboard.client import FieldError
from dashboard.records import Catalogue, Config


@dataclass(slots=True)
class Draft:
    """A run that has not been started."""

    source: str
    """What it was begun from: a preset, a run, or nothing."""
    name: str
    config: Config
    version: int = 0
    """Counts replacements of the whole configuration: widgets of an older one are dropped."""
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    errors: tuple[FieldError, ...] = ()
    checked: Config | None = None
    """The configuration that the errors (or their absence) are about."""
    is_sent: bool = False

    def replace(self, source: str, name: str, config: Config) -> None:
        """Begin again from another configuration."""
        self.source, self.name, self.config = source, name, config
        self.version += 1
        self.errors, self.checked = (), None

    def leave_to_method(self, *settings: str) -> None:
        """Forget settings of the rollout of which each method has its own."""
        rollout = self.config.get("rollout")
        if isinstance(rollout, dict):
            kept = {key: value for key, value in rollout.items() if key not in settings}
            self.config = {**self.config, "rollout": kept}

    def idempotency_key(self, experiment_id: str | None) -> str:
        """The same for the same content of the same draft, so that a double click is one run."""
        content = json.dumps([self.name, experiment_id, self.config], sort_keys=True)
        return f"{self.identity[:16]}-{hashlib.sha256(content.encode()).hexdigest()[:24]}"

    def errors_by_path(self) -> dict[str, list[str]]:
        """Messages beside every field they name; a clash stands at both."""
        found: dict[str, list[str]] = {}
        for error in self.errors:
            for path in error.fields:
                found.setdefault(path, []).append(sentence(error, path))
        return found


def sentence(error: FieldError, path: str | None = None) -> str:
    """An error with its hint; beside one of several clashing fields, with the others named."""
    text = error.message[:1].upper() + error.message[1:]
    others = [other for other in error.fields if path and other != path]
    if others:
        text += f" (clashes with {', '.join(others)})"
    if error.hint and error.hint.split(".")[-1] not in error.message:
        text += f" Did you mean {error.hint}?"
    return text


def first_config(catalogue: Catalogue) -> Config:
    """The shortest configuration there is: the first method on the first environment."""
    return {
        "method": {"name": catalogue["methods"][0]["name"]},
        "environment": {"name": catalogue["environments"][0]["name"]},
    }
