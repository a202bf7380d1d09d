"""``lagoon up``: what a whole platform must answer, and starts that are refused.

A platform is started in ``tests/e2e``, which uses what is here.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from cli.home import Home
from cli.up import say_ignored
from lagoon.homes import session_cookie
from workers.models.recipes import fingerprint

LAGOON = [sys.executable, "-m", "cli.main"]


def lagoon(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*LAGOON, *arguments, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def processes_of(home: Path) -> dict[int, str]:
    """Every process on the machine that carries this home folder, and its command line."""
    return processes_with(f"LAGOON_HOME={home}")


def processes_with(variable: str) -> dict[int, str]:
    """Every process whose environment has this NAME=VALUE, and its command line."""
    wanted = variable.encode()
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        folder = Path("/proc") / name
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def listening(pid: int) -> set[str]:
    """The addresses at which a process waits for connections; IPv4 in IPv6 as IPv4."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }


@contextmanager
def up(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A ``lagoon up`` that has said it is ready, and what it said until then."""
    command = [*LAGOON, "up", "--no-demo", "--home", str(home), *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        said = []
        try:
            for line in process.stdout:
                said.append(line.rstrip())
                if "Ctrl-C stops everything" in line:
                    break
            assert process.poll() is None, "\n".join(said)
            yield process, said
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            said += [line.rstrip() for line in process.stdout]
            process.wait(90)
            shutil.rmtree(Home(home).short, ignore_errors=True)


def without_building(home: Path) -> None:
    """Let the home folder look as if the starting model had been built: it is not needed here."""
    (home / "models" / "tiny" / fingerprint("tiny")).mkdir(parents=True)


def serves_and_signs_in(home: Path, said: list[str]) -> None:
    """What a platform that said ``said`` must answer, whatever it has in its database."""
    link = next(word for line in said for word in line.split() if "/signin?" in word)
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        page = browser.get(link)
        assert page.is_success
        assert session_cookie(home) in browser.cookies
        page = browser.get(link)
        assert "signin=expired" in str(page.url)

    status = json.loads(lagoon(home, "status", "--json").stdout)
    assert status["up"]
    assert {name: check["ok"] for name, check in status["checks"].items()} == {
        "postgres": True,
        "broker": True,
        "ray": True,
        "worker": True,
    }
    assert all(process["alive"] for process in status["processes"])
    assert {address for pid in processes_of(home) for address in listening(pid)} == {"127.0.0.1"}
    assert status["memory_mib"] > 100
    again = lagoon(home, "up", "--no-demo")
    assert again.returncode == 0
    assert "already up" in again.stdout
    assert "/signin?" in again.stdout
    for name in ("admin-password", "cli.json", "service-token", "ray-token"):
        assert (home / "credentials" / name).stat().st_mode & 0o777 == 0o600


def test_variables_that_a_start_ignores_are_named_without_their_values(capsys):
    say_ignored(
        {
            "LAGOON_HOME": "/h",
            "LAGOON_API_KEY": "lgk_secret",
            "LAGOON_ADMIN_PASSWORD": "hunter2",
            "LAGOON_API_URL": "",
            "PATH": "/bin",
        }
    )
    assert capsys.readouterr().out == (
        "Set but ignored: LAGOON_ADMIN_PASSWORD, LAGOON_API_KEY. lagoon up makes its own settings "
        "for these.\n"
    )
    say_ignored({"LAGOON_HOME": "/h"})
    assert capsys.readouterr().out == ""


def test_a_taken_port_is_one_line_and_starts_nothing(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = lagoon(tmp_path / "home", "up", "--no-demo", "--api-port", str(port))
    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        f"Port {port} is taken by another program. Nothing was started. Choose another with "
        "--api-port N, or leave it out."
    ]
    assert not (tmp_path / "home" / "postgres").exists()


def test_an_unwritable_home_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    answer = lagoon(tmp_path / "file" / "home", "up")
    assert answer.returncode == 1
    assert len(answer.stderr.splitlines()) == 1
    assert "cannot be written" in answer.stderr


def test_down_and_status_of_a_home_that_is_not_up(tmp_path):
    assert "Nothing was running" in lagoon(tmp_path, "down").stdout
    answer = lagoon(tmp_path, "status")
    assert answer.returncode == 1
    assert "not up" in answer.stdout
