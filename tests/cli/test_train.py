"""``lagoon train``: a run without a platform, up to the driver."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from cli.home import Home
from cli.main import main
from cli.runfile import new_output
from cli.services.base import ROOT
from cli.services.ray_head import use_ray
from lagoon.config import RunConfig
from workers import standalone
from workers.resuming import Candidates


def test_a_run_without_a_platform_gets_a_folder_named_after_its_file_and_its_start():
    folder = new_output(Path("mine/es.yaml"), datetime(2030, 1, 2, 3, 4, 5))
    assert folder == Path("runs/es-20300102-030405")


@pytest.fixture
def own_environment(monkeypatch):
    """What ``train`` sets for the Ray of its own is gone after the test."""
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("own_environment")
def test_train_needs_nothing_but_a_file(tmp_path, capsys, monkeypatch):
    outputs = []

    def train(config: RunConfig, output: Path, home: Path, candidates: Candidates) -> int:
        outputs.append(output)
        return 0

    file = tmp_path / "mine.yaml"
    file.write_text("method: {name: grpo}\nenvironment: {name: calculator}\n")
    monkeypatch.setattr(standalone, "train_standalone", train)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["train", str(file), "--home", str(tmp_path)])
    assert ended.value.code == 0
    assert str(outputs[0]).startswith("runs/mine-")
    said = capsys.readouterr().out
    assert f"go to {outputs[0]}." in said
    assert "Starts a Ray of its own on this machine" in said


def test_a_ray_of_trains_own_keeps_to_this_machine_and_asks_for_a_token(tmp_path):
    environment: dict[str, str] = {}
    use_ray(Home(tmp_path), environment)
    assert environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert Path(environment["RAY_AUTH_TOKEN_PATH"]).stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_is_named_is_joined_as_it_is(tmp_path):
    environment = {"RAY_ADDRESS": "head:6379"}
    assert use_ray(Home(tmp_path), environment) == (
        "Joins the Ray cluster at RAY_ADDRESS=head:6379."
    )
    assert environment == {"RAY_ADDRESS": "head:6379"}


def test_train_refuses_a_folder_that_holds_a_run(tmp_path, capsys):
    file, output = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text("method: {name: grpo}\nenvironment: {name: calculator}\n")
    output.mkdir()
    (output / "events.jsonl").write_text("{}\n")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(file), "--output", str(output), "--home", str(tmp_path)])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"{output} holds the events of another run. Nothing was changed: choose another folder "
        "with --output DIR.\n"
    )
    assert [path.name for path in output.iterdir()] == ["events.jsonl"]


def test_train_refuses_an_output_that_cannot_be_written(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("method: {name: grpo}\nenvironment: {name: calculator}\n")
    for output in (file, file / "x", Path("/proc/nowhere"), tmp_path / ("long" * 80)):
        with pytest.raises(SystemExit) as ended:
            main(["train", str(file), "--output", str(output), "--home", str(tmp_path)])
        assert ended.value.code == 1
        said = capsys.readouterr()
        assert said.out == ""
        [line] = said.err.splitlines()
        assert line.startswith(f"The output folder {output} cannot be written (")
        assert line.endswith("Nothing was started: choose another folder with --output DIR.")


def test_a_failing_train_says_why_on_the_terminal_and_in_its_events(tmp_path):
    file, output = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text("method: {name: grpo}\nenvironment: {name: calculator}\n")
    arguments = ["train", str(file), "--output", str(output), "--home", str(tmp_path / "home")]
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        env={**os.environ, "RAY_ADDRESS": "nowhere://x"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    reason = "The driver failed: Module: nowhere does not exist."
    assert ended.stderr.splitlines()[-1] == f"failed: {reason}"
    events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
    assert [event["type"] for event in events] == ["log", "ended"]
    assert reason in events[0]["lines"][0]


def test_train_refuses_a_bad_config_before_it_loads_anything(tmp_path, capsys):
    file = tmp_path / "bad.yaml"
    file.write_text("method: {name: gripo}\nenvironment: {name: calculator}\n")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(file), "--output", str(tmp_path / "out"), "--home", str(tmp_path)])
    assert ended.value.code == 1
    assert "did you mean 'grpo'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
