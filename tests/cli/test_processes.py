"""Starting and ending real processes: only ours, all of ours."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.down import down
from cli.home import Home
from cli.output import Refusal
from cli.processes import (
    STACK,
    Stack,
    end,
    load_stack,
    marked,
    record,
    start_ticks,
    stop_in_order,
    sweep,
    wait_until,
)
from cli.services.base import Service
from cli.supervisor import Supervisor, child_environment
from cli.up import end_leftovers

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time, pathlib, sys\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pathlib.Path(sys.argv[1]).touch()\n"
    "time.sleep(60)"
)
# Ends well when it is told to, as a run's driver does.
DRIVER = (
    "import signal, sys, time, pathlib\n"
    "def stop(*_):\n"
    "    pathlib.Path(sys.argv[1]).write_text('ended')\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
    "pathlib.Path(sys.argv[1]).touch()\n"
    "time.sleep(60)"
)
# A child in a session of its own, as Ray's job drivers are, whose parent does not wait for it.
PARENT = (
    "import subprocess, sys, time, pathlib\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)\n"
    "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
    "time.sleep(60)"
)


def new_home(folder: Path) -> Home:
    home = Home(folder / "home")
    home.create()
    return home


def supervisor(home: Home, said: list[str], mark: str = "test-mark") -> Supervisor:
    return Supervisor(home, f"{mark}-{home.key}", said.append, os.environ)


def service(name: str, code: str, *arguments: str, ready=lambda: True, **options) -> Service:
    command = [sys.executable, "-c", code, *arguments]
    return Service(name, name, command, ready, ready_seconds=20.0, **options)


def saved(home: Home) -> Stack:
    stack = load_stack(home.stack_file)
    assert stack is not None
    return stack


def test_stopping_ends_children_and_their_children(tmp_path):
    home, said = new_home(tmp_path), []
    pid_file = tmp_path / "pid"
    ours = supervisor(home, said)
    ours.start(service("parent", PARENT, str(pid_file), ready=pid_file.exists))
    ours.wait_ready("parent")
    assert wait_until(lambda: pid_file.read_text() != "", 10)
    stack = saved(home)
    assert len(marked(stack.mark)) == 2
    ours.stop()
    assert marked(stack.mark) == []
    assert start_ticks(int(pid_file.read_text())) is None
    assert not home.stack_file.exists()


def test_what_ignores_its_signal_is_killed_after_its_grace(tmp_path):
    home, said = new_home(tmp_path), []
    started = tmp_path / "started"
    ours = supervisor(home, said)
    stubborn = service("stubborn", STUBBORN, str(started), ready=started.exists, stop_seconds=0.2)
    ours.start(stubborn)
    ours.wait_ready("stubborn")
    (process,) = saved(home).processes
    ours.stop()
    assert not process.is_alive


def test_processes_end_in_reverse_order(tmp_path):
    home, said = new_home(tmp_path), []
    ours = supervisor(home, said)
    for name in ("first", "second"):
        ours.start(service(name, SLEEP))
    said.clear()
    ours.stop()
    assert said == ["  stopping second", "  stopping first"]


def test_drivers_end_after_the_worker_and_before_ray_and_the_api(tmp_path):
    home, said = new_home(tmp_path), []
    package, state = tmp_path / "workers", tmp_path / "state"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "driver.py").write_text(DRIVER)
    ours = supervisor(home, said)
    for name in ("postgres", "ray", "api", "worker", "valkey"):
        ours.start(service(name, SLEEP))
    command = [sys.executable, "-m", "workers.driver", str(state)]
    environment = {**os.environ, STACK: saved(home).mark, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as driver:
        assert wait_until(state.exists, 20)
        said.clear()
        ours.stop()
    assert driver.returncode == 0
    assert state.read_text() == "ended"
    stopped = [line.split()[1] for line in said]
    assert stopped == ["worker", "runs:", "ray", "api", "valkey", "postgres"]


def test_a_process_with_the_same_id_but_another_start_is_left_alone():
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as stranger:
        ours = record("x", stranger.pid)
        assert ours is not None
        for impostor in (replace(ours, started=ours.started - 1), replace(ours, boot="other")):
            assert not impostor.is_alive
            end(impostor, signal.SIGKILL)
            stop_in_order([impostor], signals={}, on_stop=lambda _: None)
            assert sweep("no such mark", [impostor])
        assert ours.is_alive
        end(ours, signal.SIGKILL)
    assert not ours.is_alive


def test_a_shell_that_only_knows_the_home_folder_is_not_ours(tmp_path):
    environment = {**os.environ, "LAGOON_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", SLEEP], env=environment) as shell:
        assert sweep("test-mark-of-another", seconds=1)
        assert shell.poll() is None
        shell.kill()


def test_every_process_carries_home_and_mark_and_nothing_that_leads_it_elsewhere(tmp_path):
    home = Home(tmp_path)
    base = {"LAGOON_DATABASE_URL": "x", "RAY_ADDRESS": "y", "STREAMLIT_SERVER_PORT": "1", "A": "b"}
    environment = child_environment(base, home, "m")
    assert environment["LAGOON_HOME"] == str(tmp_path)
    assert environment[STACK] == "m"
    assert environment["A"] == "b"
    assert not {"LAGOON_DATABASE_URL", "RAY_ADDRESS", "STREAMLIT_SERVER_PORT"} & set(environment)


def test_a_process_that_ends_at_once_shows_its_last_words(tmp_path):
    home, said = new_home(tmp_path), []
    ours = supervisor(home, said)
    ours.start(service("broken", "raise SystemExit('no such thing')", ready=lambda: False))
    with pytest.raises(Refusal, match="ended at once") as refused:
        ours.wait_ready("broken")
    assert "no such thing" in str(refused.value)
    ours.stop()


def test_a_process_that_dies_is_started_again_but_not_for_ever(tmp_path):
    home, said = new_home(tmp_path), []
    ours = supervisor(home, said)
    ours.start(service("frail", "pass"))
    with pytest.raises(Refusal, match="keeps ending"):
        wait_until(lambda: ours.watch() is not None, 30)
    assert sum("starting it again" in line for line in said) == 3
    ours.stop()


def test_a_killed_process_gets_a_successor(tmp_path):
    home, said = new_home(tmp_path), []
    ours = supervisor(home, said)
    ours.start(service("api", SLEEP))
    (before,) = saved(home).processes
    end(before, signal.SIGKILL)
    assert wait_until(lambda: not before.is_alive, 10)
    ours.watch()
    (after,) = saved(home).processes
    assert after.is_alive
    assert after.pid != before.pid
    ours.stop()


def test_a_second_ctrl_c_kills_at_once(tmp_path):
    home, started = new_home(tmp_path), tmp_path / "started"
    code = (
        "import os, signal, sys, pathlib\n"
        "from cli.home import Home\n"
        "from cli.supervisor import Supervisor\n"
        "from tests.cli.test_processes import STUBBORN, service\n"
        # Tests that a shell started in its background inherit that Ctrl-C is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "home, started = Home(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])\n"
        "ours = Supervisor(home, 'test-twice-' + home.key, lambda line: print(line, flush=True),"
        " os.environ)\n"
        "ours.start(service('stubborn', STUBBORN, str(started), ready=started.exists,"
        " stop_seconds=600))\n"
        "ours.wait_ready('stubborn')\n"
        "ours.stop()\n"
    )
    command = [sys.executable, "-c", code, str(home.root), str(started)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "stopping" in line:
                break
        process.send_signal(signal.SIGINT)
        assert "killing the rest" in process.stdout.read()
    assert process.returncode == 0
    assert marked(f"test-twice-{home.key}") == []


def orphans(home: Home, mark: str) -> Stack:
    """What a killed ``lagoon up`` leaves behind: its file, and a process that lives on."""
    environment = {**os.environ, STACK: mark}
    child = subprocess.Popen([sys.executable, "-c", SLEEP], env=environment)
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as owner:
        owner_record, process = record("up", owner.pid), record("api", child.pid)
        assert owner_record is not None
        assert process is not None
        owner.kill()
    stack = Stack(mark, owner_record, (process,))
    stack.save(home.stack_file)
    child.returncode = 0  # ended by somebody else: not this object's to wait for
    return stack


def test_the_next_start_ends_what_an_earlier_one_left_behind(tmp_path):
    home = new_home(tmp_path)
    stack = orphans(home, f"test-left-{home.key}")
    end_leftovers(home)
    assert not stack.processes[0].is_alive
    assert not home.stack_file.exists()


def test_down_ends_processes_without_their_owner(tmp_path):
    home = new_home(tmp_path)
    stack = orphans(home, f"test-down-{home.key}")
    assert down(home)
    assert not stack.processes[0].is_alive
    assert not down(home)


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"mark": "m", "processes": [1]})])
def test_a_spoilt_file_of_processes_counts_as_none(tmp_path, text):
    path = tmp_path / "processes.json"
    path.write_text(text)
    assert load_stack(path) is None
