"""Settings of services: addresses are checked when they are read, not when they are first used."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr, ValidationError


def web_url(value: str) -> str:
    """The address without a trailing slash. Raises ``ValueError`` when it is not one of the web."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("must be an http:// or https:// URL")
    return value.rstrip("/")


WebUrl = Annotated[str, AfterValidator(web_url)]
"""A setting that holds a web address."""


def broker_url(value: SecretStr) -> SecretStr:
    """The address as it is. Raises ``ValueError`` when it is not one of Redis or Valkey."""
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in ("redis", "rediss") or not parts.netloc:
        raise ValueError("must be a redis:// URL")
    return value


BrokerUrl = Annotated[SecretStr, AfterValidator(broker_url)]
"""A setting that holds the address of the queue of tasks, with its password."""


def wrong_settings(service: str, error: ValidationError) -> str:
    """What a service says, instead of starting, of settings that are missing or wrong: one line for
    each, by its environment variable."""
    lines = [f"LAGOON_{str(each['loc'][0]).upper()}: {each['msg']}" for each in error.errors()]
    return "\n".join([f"The {service}'s settings are wrong.", *lines])
