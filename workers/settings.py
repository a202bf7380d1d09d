"""Settings of the workers: environment variables with one prefix, validated when first used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from lagoon.homes import home_folder
from lagoon.service_settings import BrokerUrl, WebUrl

MIN_QUOTA_BYTES = 16 * 1024**2
"""Four of the largest batches."""
DEFAULT_QUOTA_BYTES = 1024**3


class SpoolSettings(BaseSettings):
    """What a driver needs to know besides its command line. The Celery worker hands it on."""

    model_config = SettingsConfigDict(
        env_prefix="LAGOON_", use_attribute_docstrings=True, extra="ignore", frozen=True
    )

    spool_quota_bytes: int = Field(DEFAULT_QUOTA_BYTES, ge=MIN_QUOTA_BYTES)
    """Room on the disk for the events of one attempt that the API has not taken yet; past it,
    trajectories and metric points are dropped."""


class Settings(SpoolSettings):
    """What the Celery tasks need to know of their surroundings. The database is not among it."""

    home: Annotated[Path, BeforeValidator(home_folder)] = Field(default_factory=home_folder)
    """Folder for attempts and models; shared by the nodes of a cluster."""
    api_url: WebUrl = "http://127.0.0.1:8000"
    """Where the API answers."""
    broker_url: BrokerUrl = SecretStr("redis://127.0.0.1:6379/0")
    """Redis or Valkey, as redis://:password@host:port/0."""
    service_token_file: Path | None = None
    """File with the workers' credential. Default: credentials/service-token in the home folder."""
    ray_address: WebUrl = "http://127.0.0.1:8265"
    """Where Ray's Jobs API answers."""
    observe_seconds: float = Field(3.0, gt=0)
    """Time between two looks at Ray."""

    @property
    def service_token(self) -> str:
        """The workers' credential, read anew every time: the API makes it at its first start."""
        path = self.service_token_file or self.home / "credentials" / "service-token"
        return path.read_text(encoding="utf-8").strip()


def described(settings: Settings) -> dict[str, str]:
    """Every setting by its environment variable, with secrets masked, for the log at start."""
    shown = {f"LAGOON_{name.upper()}": str(value) for name, value in settings}
    broker = urlsplit(settings.broker_url.get_secret_value())
    place = broker.netloc.rpartition("@")[2]
    shown["LAGOON_BROKER_URL"] = f"{broker.scheme}://{place}{broker.path}"
    return shown


def ray_token() -> str | None:
    """The token of Ray's own authentication, from Ray's own variables; None without one."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(path).read_text(encoding="utf-8").strip() if path else None


def own_home() -> Path:
    """The home folder of this process: LAGOON_HOME, else ``~/.lagoon``."""
    return home_folder(os.environ.get("LAGOON_HOME"))
