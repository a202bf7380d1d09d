"""Training methods, one file each, found by folder. Adding a file here is all it takes."""

import sys
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from lagoon.discovery import concrete_classes
from lagoon.methods.base import Evolution, Method, PolicyGradient

METHODS: tuple[type[Method], ...] = concrete_classes(sys.modules[__name__], Method)
"""Every method, by name."""

if TYPE_CHECKING:
    AnyMethod = Method
else:
    AnyMethod = Annotated[Union[METHODS], Field(discriminator="name")]  # noqa: UP007  built at run time

__all__ = ["METHODS", "AnyMethod", "Evolution", "Method", "PolicyGradient"]
