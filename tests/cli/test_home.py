"""The home folder and what it refuses."""

import os
import stat

import pytest

from cli.home import Home, HomeLock, find_home, write_private
from cli.output import Refusal


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_made_once_and_readable_by_their_owner_alone(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    first = home.secret("token", prefix="p_")
    assert first.startswith("p_")
    assert home.secret("token") == first
    assert mode(home.credentials / "token") == 0o600
    assert mode(home.credentials) == 0o700
    assert mode(home.root) == 0o700


def test_writing_a_private_file_replaces_it_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("old, and open to all")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)
    assert os.listdir(tmp_path) == ["x"]


def test_a_home_that_cannot_be_a_folder_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal) as refused:
        Home(tmp_path / "file" / "home").create()
    assert "cannot be written" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_sockets_of_the_deepest_home_fit_their_107_bytes(tmp_path):
    home = Home(tmp_path / ("long" * 40))
    ray = "ray/session_2026-11-29_15-07-16_265946_1056900/sockets/dash_MetricsHead"
    assert len(str(home.short / ray)) <= 107


def test_two_homes_have_two_keys(tmp_path):
    assert Home(tmp_path / "a").key != Home(tmp_path / "b").key
    assert Home(tmp_path / "a").short != Home(tmp_path / "b").short


def test_only_one_starter_holds_a_home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    with HomeLock(home) as second:
        with HomeLock(home) as first:
            assert first.take()
            assert not second.take()
        assert second.take()


def test_the_option_outranks_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LAGOON_HOME", str(tmp_path / "env"))
    assert find_home(None).root == tmp_path / "env"
    assert find_home(tmp_path / "option").root == tmp_path / "option"
