"""Settings are checked at the start and printed without secrets."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from backend.accounts.bootstrap import service_token_hash
from backend.app import app_from_environment
from backend.logs import WithoutQuery
from backend.settings import Settings, described
from backend.tokens import Token, mint, parse

DATABASE = "postgresql://lagoon:hunter2@db.example:5432/lagoon"


def settings(home: Path, **changes: object) -> Settings:
    values = {"database_url": DATABASE, "broker_url": "redis://:hunter2@broker:6379/0", **changes}
    return Settings(home=home, **values)  # type: ignore[arg-type]  # strings are parsed


def test_settings_are_printed_with_secrets_masked(tmp_path: Path) -> None:
    shown = described(settings(tmp_path, admin_password="hunter2 and more"))
    assert "hunter2" not in str(shown)
    assert shown["LAGOON_DATABASE_URL"] == "postgresql+psycopg://lagoon:***@db.example:5432/lagoon"
    assert shown["LAGOON_BROKER_URL"] == "redis://:***@broker:6379/0"
    assert shown["LAGOON_ADMIN_PASSWORD"] == "***"
    assert shown["LAGOON_HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"database_url": "sqlite:///file.db"},
        {"database_url": "not a url"},
        {"broker_url": "nonsense"},
        {"broker_url": "redis://"},
        {"broker_url": "http://broker:6379/0"},
        {"api_url": "ftp://api"},
        {"dashboard_url": "dashboard"},
        {"admin_password": "hunter2"},
        {"admin_password": "x" * 1001},
        {"database_pool_size": 0},
        {"log_retention_days": 0},
        {"trajectory_retention_days": "soon"},
        {"max_log_lines_per_run": 99},
        {"max_trajectories_per_run": 9},
        {"checkpoint_quota_bytes": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(tmp_path, **changes)


def test_a_start_without_settings_ends_with_one_line_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DATABASE_URL", "BROKER_URL", "API_URL"):
        monkeypatch.delenv(f"LAGOON_{name}", raising=False)
    monkeypatch.setenv("LAGOON_API_URL", "nonsense")
    with pytest.raises(SystemExit) as ended:
        app_from_environment()
    lines = str(ended.value).splitlines()
    assert len(lines) == 4
    assert any(line.startswith("LAGOON_DATABASE_URL: ") for line in lines)


def test_a_password_of_the_admin_that_is_too_short_ends_the_start_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAGOON_DATABASE_URL", DATABASE)
    monkeypatch.setenv("LAGOON_BROKER_URL", "redis://broker:6379/0")
    monkeypatch.setenv("LAGOON_ADMIN_PASSWORD", "hunter2")
    with pytest.raises(SystemExit) as ended:
        app_from_environment()
    [_, line] = str(ended.value).splitlines()
    assert line.startswith("LAGOON_ADMIN_PASSWORD: ")
    assert "must have 8 to 1000 characters" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_password_of_the_admin_counts_as_none(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, admin_password=text).admin_password is None


def test_the_service_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "new" / "home")
    first = service_token_hash(chosen)
    assert service_token_hash(chosen) == first
    assert stat.S_IMODE(chosen.service_token_path.stat().st_mode) == 0o600
    other = settings(tmp_path, service_token_file=tmp_path / "token")
    (tmp_path / "token").write_text("lgs_service.abc\n")
    assert service_token_hash(other) == Token("lgs", "service", "abc").hash
    (tmp_path / "token").write_text("something else")
    with pytest.raises(ValueError, match="does not hold a service token"):
        service_token_hash(other)


def test_tokens_are_parsed_and_never_shown_by_repr() -> None:
    token = mint("lga", "r1234567-a1")
    assert parse(str(token)) == token
    assert token.secret not in repr(token)
    assert token.matches(token.hash)
    assert not token.matches(mint("lga", token.id).hash)
    assert not token.matches(None)
    for text in ("", "lga", "lga_x", "lga_x.", "xyz_a.b", "."):
        assert parse(text) is None


def test_the_access_log_holds_no_query() -> None:
    record = logging.LogRecord(
        "uvicorn.access",
        logging.INFO,
        __file__,
        1,
        '%s - "%s %s HTTP/%s" %d',
        ("127.0.0.1:1", "GET", "/api/v1/signin?ticket=lgt_t1.secret", "1.1", 303),
        None,
    )
    assert WithoutQuery().filter(record)
    assert record.getMessage() == '127.0.0.1:1 - "GET /api/v1/signin HTTP/1.1" 303'
