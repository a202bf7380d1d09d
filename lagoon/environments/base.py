"""What the core knows of an environment: its parameters. Its behavior lives in
``workers/environments/``, in a module of the same name."""

from typing import ClassVar

from pydantic import Field

from lagoon.clashes import Clash
from lagoon.section import Section


class EnvironmentConfig(Section):
    """Parameters of an environment. Subclass in a file named like the environment."""

    title: ClassVar[str]
    """The name shown to people."""
    extra_package: ClassVar[str | None] = None
    """The package that its behavior imports beyond what Lagoon itself requires."""
    extra_command: ClassVar[str] = ""
    """How to install that package."""

    max_turns: int = Field(1, ge=1, le=1000)
    """Model turns after which an episode is cut."""
    max_tokens_per_turn: int = Field(64, ge=1, le=65536)
    """Sampled tokens after which a turn is cut."""

    def clashes(self) -> list[Clash]:
        """Parameters that no episode could succeed with."""
        return []
