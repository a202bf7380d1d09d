"""Every part of Lagoon that is told the same finds the same home folder."""

from pathlib import Path

import pytest

from backend.settings import Settings as ApiSettings
from cli.home import find_home
from dashboard.settings import Settings as DashboardSettings
from lagoon.homes import session_cookie
from workers.settings import Settings as WorkerSettings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "me/.lagoon"),
        ({"LAGOON_HOME": ""}, "me/.lagoon"),
        ({"LAGOON_HOME": "~/there"}, "me/there"),
        ({"LAGOON_HOME": "here"}, "work/here"),
    ],
)
def test_all_parts_have_one_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("LAGOON_HOME", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    api = ApiSettings(database_url="postgresql://db/lagoon", broker_url="redis://broker")  # type: ignore[arg-type]  # strings are parsed
    home = tmp_path / expected
    assert (api.home, WorkerSettings().home, find_home(None).root) == (home, home, home)
    assert DashboardSettings.from_environment(given).session_cookie == session_cookie(home)
