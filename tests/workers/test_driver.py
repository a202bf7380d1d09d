import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagoon.events import EndMarker, RunEnded
from lagoon.homes import short_folder
from lagoon.ledger import Ledger
from tests.builders import es_config
from tests.workers.fakes import ListSink
from workers.assignment import Assignment
from workers.cluster import own_cluster
from workers.driver import Surroundings, _check_memory, _start
from workers.failures import RunFailed
from workers.loops.state import LoopState
from workers.reporting import Reporter, SinkHandler
from workers.resuming import Restored
from workers.sink import Sink
from workers.standalone import Run, train_standalone
from workers.stops import StopSwitch


def ends(outcome: EndMarker, reason: str = "") -> Run:
    """A run that says one line of its log and ends."""

    def run(
        assignment: Assignment, sink: Sink, switch: StopSwitch, checkpoints: Path, home: Path
    ) -> RunEnded:
        handler = SinkHandler(sink)
        logging.getLogger().addHandler(handler)
        Reporter(sink, lambda: 1.0).status("starting", f"At home in {os.environ['LAGOON_HOME']}.")
        logging.getLogger("another.library").info("chatter")
        logging.getLogger().removeHandler(handler)
        ended = RunEnded(at=2.0, outcome=outcome, reason=reason)
        sink.log(ended)
        return ended

    return run


@pytest.mark.parametrize(
    ("outcome", "reason", "last", "code"),
    [
        ("failed", "The model is gone.", "failed: The model is gone.", 1),
        ("stopped", "Stopped on request.", "stopped: Stopped on request.", 0),
        ("finished", "", "finished", 0),
    ],
)
def test_a_standalone_run_says_what_happens_and_how_it_ended(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    outcome: EndMarker,
    reason: str,
    last: str,
    code: int,
) -> None:
    home = tmp_path / "home"
    assert train_standalone(es_config(), tmp_path / "out", home, run=ends(outcome, reason)) == code
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith(f"INFO At home in {home}.")
    assert others == [last]


def test_a_standalone_runs_log_is_among_its_events(tmp_path: Path) -> None:
    train_standalone(es_config(), tmp_path / "out", tmp_path / "home", run=ends("finished"))
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == ["log", "status", "ended"]
    assert events[0]["lines"] == [f"At home in {tmp_path / 'home'}."]


def test_a_standalone_run_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    loggers = [logging.getLogger(name) for name in ("", "lagoon", "workers")]
    before = [(each.level, list(each.handlers)) for each in loggers], dict(os.environ)
    train_standalone(es_config(), tmp_path / "out", tmp_path / "home", run=ends("finished"))
    assert ([(each.level, list(each.handlers)) for each in loggers], dict(os.environ)) == before


def test_a_folder_that_holds_a_run_takes_no_second_one(tmp_path: Path) -> None:
    train_standalone(es_config(), tmp_path, tmp_path / "home", run=ends("finished"))
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError):
        train_standalone(es_config(seed=7), tmp_path, tmp_path / "home", run=ends("finished"))
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_the_memory_for_a_model_that_validation_does_not_know_is_checked_before_it_is_loaded(
    tmp_path: Path,
) -> None:
    shape = {"num_hidden_layers": 30, "num_attention_heads": 3, "head_dim": 64}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    config = es_config(model={"path": str(tmp_path)}, rollout={"max_concurrent": 92})
    with pytest.raises(
        RunFailed,
        match=r"too small: 92 episodes of up to .* GiB, which holds 91 \(rollout.max_concurrent, ",
    ):
        _check_memory(config, tmp_path)
    _check_memory(
        es_config(model={"path": str(tmp_path)}, rollout={"max_concurrent": 91}), tmp_path
    )
    (tmp_path / "config.json").write_text("{}")
    _check_memory(config, tmp_path)  # where nothing is known nothing is refused


async def test_a_replacement_begins_with_the_model_when_the_attempts_beginning_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint makes room for newer ones, as any other does."""
    config, checkpoint = es_config(), tmp_path / "step-000005"
    checkpoint.mkdir()
    begins = Restored(checkpoint, LoopState(5, 5, 0.0, 0, 0, Ledger()))
    began_with: list[Path | None] = []

    class Actor:
        def end(self) -> None:
            """Nothing is left of it."""

    def start_generator(*_: object, checkpoint: Path | None, version: int) -> Actor:
        began_with.append(checkpoint)
        return Actor()

    async def nothing(*_: object, **__: object) -> Any:
        return begins

    stand_ins: dict[str, Callable[..., Any]] = {
        "start_generators": lambda *_, **__: [Actor()],
        "start_trainer": lambda *_, **__: None,
        "all_started": nothing,
        "start_generator": start_generator,
        "started_again": nothing,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(f"workers.driver.cluster.{name}", stand_in)
    monkeypatch.setattr("workers.driver._check_capacity", lambda _: None)
    monkeypatch.setattr("workers.driver._restore", nothing)
    monkeypatch.setattr("workers.driver.heldout_indices", nothing)
    monkeypatch.setattr("workers.driver.model_folder", lambda *_: tmp_path)
    stop = asyncio.Event()
    started = await _start(config, Surroundings(ListSink(), tmp_path, tmp_path, stop))
    assert started.another is not None
    await started.another(0)
    checkpoint.rmdir()
    await started.another(0)
    assert began_with == [checkpoint, None]


def test_a_cluster_of_our_own_keeps_its_sockets_in_the_homes_short_folder(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 40)
    folder = Path(own_cluster(home)["_temp_dir"])
    assert folder.parent == short_folder(home)
    assert folder.parent.is_dir()
    socket = folder / "session_2026-11-29_15-07-16_265946_1056900/sockets/plasma_store"
    assert len(str(socket)) < 100
    folder.parent.rmdir()
