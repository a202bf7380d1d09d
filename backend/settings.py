"""Settings of the API: environment variables with one prefix, validated at start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from lagoon.homes import home_folder, session_cookie
from lagoon.service_settings import BrokerUrl, WebUrl


def _postgres_url(value: SecretStr) -> SecretStr:
    try:
        url = make_url(value.get_secret_value())
    except ArgumentError as error:
        raise ValueError("not a database URL") from error
    if url.get_backend_name() != "postgresql":
        raise ValueError("the database must be Postgres: postgresql+psycopg://…")
    return SecretStr(url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False))


MIN_PASSWORD, MAX_PASSWORD = 8, 1000
"""Characters of a password that somebody chooses."""


def _admin_password(value: SecretStr | None) -> SecretStr | None:
    """The password, or None where nothing but blanks is set: a random one is made then."""
    if value is None or not value.get_secret_value().strip():
        return None
    if not MIN_PASSWORD <= len(value) <= MAX_PASSWORD:
        raise ValueError(
            f"must have {MIN_PASSWORD} to {MAX_PASSWORD} characters; leave it empty for a random "
            "one, written to a file"
        )
    return value


class Settings(BaseSettings):
    """What the API needs to know of its surroundings."""

    model_config = SettingsConfigDict(
        env_prefix="LAGOON_", use_attribute_docstrings=True, extra="ignore", frozen=True
    )

    home: Annotated[Path, BeforeValidator(home_folder)] = Field(default_factory=home_folder)
    """Folder for credentials and everything else that is kept on disk. The name of the session
    cookie follows from it, so the dashboard must be given the same one."""
    database_url: Annotated[SecretStr, AfterValidator(_postgres_url)]
    """Postgres, as postgresql+psycopg://user:password@host/database."""
    broker_url: BrokerUrl
    """Redis or Valkey, as redis://host:port/0."""
    api_url: WebUrl = "http://127.0.0.1:8000"
    """Where drivers and the CLI reach this API."""
    public_api_url: WebUrl | None = None
    """Where browsers reach this API. Default: the same place."""
    dashboard_url: WebUrl = "http://127.0.0.1:8501"
    """Where browsers reach the dashboard: the only place a sign-in link may lead to."""
    service_token_file: Path | None = None
    """File with the workers' credential; made on first start. Default: under the home folder."""
    admin_password: Annotated[SecretStr | None, AfterValidator(_admin_password)] = None
    """Password of the first account; random, and written to a file, when empty or blank."""
    presets_dir: Path = Path("presets")
    """Folder of the run configurations offered on the launch page."""
    log_retention_days: int | None = Field(None, ge=1, le=36_500)
    """Days after a run's end for which its log is kept. Default: for ever."""
    trajectory_retention_days: int | None = Field(None, ge=1, le=36_500)
    """Days after a run's end for which its trajectories are kept. Default: for ever."""
    max_log_lines_per_run: int = Field(200_000, ge=100)
    """The newest lines of a run's log that are kept; a tenth more may gather between two turns."""
    max_trajectories_per_run: int = Field(20_000, ge=10)
    """The newest trajectories of a run that are kept, likewise."""
    checkpoint_quota_bytes: int | None = Field(None, ge=0)
    """Bytes of weights in the home folder past which the oldest ones of ended runs are removed,
    but for the newest, the best and the final ones of each run. Default: no quota."""
    database_pool_size: int = Field(10, ge=1, le=1000)
    """Connections to Postgres that one API process keeps."""

    @property
    def credentials_dir(self) -> Path:
        """Where credentials that the API makes itself are kept, each readable by one user."""
        return self.home / "credentials"

    @property
    def service_token_path(self) -> Path:
        """The file that holds the workers' credential."""
        return self.service_token_file or self.credentials_dir / "service-token"

    @property
    def session_cookie(self) -> str:
        """The cookie that signs a browser in."""
        return session_cookie(self.home)

    @property
    def has_secure_cookies(self) -> bool:
        """True when browsers reach the API over https."""
        return self.browser_api_url.startswith("https://")

    @property
    def browser_api_url(self) -> str:
        """Where browsers reach this API."""
        return self.public_api_url or self.api_url


def described(settings: Settings) -> dict[str, str]:
    """Every setting by its environment variable, with secrets masked, for the log at start."""
    shown = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = _masked(value.get_secret_value())
        shown[f"LAGOON_{name.upper()}"] = str(value)
    return shown


def _masked(secret: str) -> str:
    """A URL without its password and its query; ``***`` for anything else."""
    parts = urlsplit(secret)
    if not parts.scheme:
        return "***"
    user, at, host = parts.netloc.rpartition("@")
    if at:
        user = user.split(":")[0] + ":***"
    return f"{parts.scheme}://{user}{at}{host}{parts.path}"
