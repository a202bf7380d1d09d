"""Parameters of every environment, one file each, found by folder."""

import sys
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from lagoon.discovery import concrete_classes
from lagoon.environments.base import EnvironmentConfig

ENVIRONMENTS: tuple[type[EnvironmentConfig], ...] = concrete_classes(
    sys.modules[__name__], EnvironmentConfig
)
"""The configuration class of every environment, by name."""

if TYPE_CHECKING:
    AnyEnvironment = EnvironmentConfig
else:
    AnyEnvironment = Annotated[Union[ENVIRONMENTS], Field(discriminator="name")]  # noqa: UP007  built at run time

__all__ = ["ENVIRONMENTS", "AnyEnvironment", "EnvironmentConfig"]
