"""What the cases of the fault suite note, and how they look at a disk; no platform is started."""

import random
from pathlib import Path

from benchmarks.fault_cases import Case, Found, played, report
from benchmarks.fault_control import CONTROL
from benchmarks.fault_disk import FILLER, unfinished, whole
from benchmarks.fault_platform import clock_file, set_clock
from benchmarks.fault_stage import Stage, config
from benchmarks.fault_stops import STOPS
from benchmarks.fault_training import TRAINING
from cli.client import Api
from cli.home import Home
from lagoon.checkpoints import Manifest, described_files, seal
from lagoon.config import RunConfig
from tests.cli.fake_api import URL, FakeApi


def checkpoint(folder: Path) -> None:
    (folder / "lagoon").mkdir(parents=True)
    (folder / "model.safetensors").write_text("weights")
    files = described_files(folder)
    seal(
        folder,
        Manifest(
            at=0.0,
            step=4,
            method="grpo",
            model="tiny",
            is_final=False,
            heldout_success=None,
            files=files,
        ),
    )


def test_a_disk_tells_whole_checkpoints_from_what_is_left_of_others(tmp_path: Path):
    for name in ("step-000004", "step-000006"):
        checkpoint(tmp_path / name)
    (tmp_path / "step-000006" / "model.safetensors").write_text("weight")
    (tmp_path / "step-000008.partial").mkdir()
    (tmp_path / FILLER).write_text("")
    assert whole(tmp_path) == {"step-000004": 4}
    assert unfinished(tmp_path) == ["step-000006", "step-000008.partial"]


def test_every_case_has_a_name_of_its_own_and_a_config_that_is_valid():
    cases = [*TRAINING, *CONTROL, *STOPS]
    assert len({case.name for case in cases}) == len(cases)
    changed = config(3, method={"group_size": 8}, rollout={"tool_timeout_seconds": 1.0})
    resolved = RunConfig.model_validate(changed)
    assert resolved.method.group_size == 8  # type: ignore[attr-defined]  # grpo has one
    assert resolved.rollout.kv_cache_gib == 0.25


def test_what_is_late_or_otherwise_is_wrong_and_a_case_that_cannot_be_run_says_so():
    good, bad, skipped = Found("finished"), Found("failed"), Found("", not_run="no mounts")
    good.expect_soon(3.0, "too late")
    bad.expect_soon(None, "nothing was said")
    bad.expect(False, "it failed")
    whole_report = report([("one", good), ("two", bad), ("three", skipped)])
    assert whole_report.rows == [
        ("one", "finished", "3.0", "nothing"),
        ("two", "failed", "", "nothing was said: not within 60 s; it failed"),
        ("three", "not run: no mounts", "", ""),
    ]
    assert whole_report.figure == "2 cases, 1 with something wrong; not run: three"
    assert len(whole_report.missed) == 1


def test_a_case_that_breaks_is_wrong_and_hides_no_other(tmp_path: Path):
    def broken(stage: Stage, order: random.Random) -> Found:
        raise KeyError("no such run")

    stage = Stage(Home(tmp_path), Api(URL, "key", FakeApi({})))
    assert played(Case("broken", broken), stage, random.Random(0)).wrong == [
        "the case broke: KeyError: 'no such run'"
    ]


def test_the_clock_is_set_as_a_whole(tmp_path: Path):
    set_clock(Home(tmp_path), -3600.0)
    assert float(clock_file(tmp_path).read_text()) == -3600.0
