"""What the fault suite checks, on spools and answers that the test has made."""

import json
from pathlib import Path
from typing import Any

from benchmarks.fault_checks import differences, num_points, prompt_faults
from benchmarks.fault_targets import TARGETS
from benchmarks.faults import Tally, report
from cli.client import Api
from cli.home import Home
from lagoon.metrics import LEDGER_TRAINED, LOSS
from tests.cli.fake_api import URL, FakeApi


def spool(home: Home, attempt: str, *steps: tuple[int, float], cut: bool = False) -> None:
    folder = home.root / "attempts" / attempt / "spool"
    folder.mkdir(parents=True)
    lines = [
        json.dumps(
            {"events": [{"type": "step", "step": s, "points": [{"name": LOSS.name, "value": v}]}]}
        )
        for s, v in steps
    ]
    text = "\n".join(lines) + ("\n" + lines[-1][:20] if cut else "\n")
    (folder / "000001.jsonl").write_text(text)


def shown(name: str, steps: list[int], values: list[float]) -> dict[str, Any]:
    return {"series": [{"name": name, "labels": {}, "points": {"step": steps, "value": values}}]}


def run(*resumed: int | None) -> dict[str, Any]:
    attempts = [{"number": n, "resumed_step": step} for n, step in enumerate(resumed, start=1)]
    return {"id": "r1", "step": 3, "attempts": attempts}


def api(answer: dict[str, Any]) -> Api:
    return Api(URL, "key", FakeApi({"GET /runs/r1/metrics": answer}))


def test_only_the_surviving_lineage_is_expected_and_a_line_that_was_cut_is_none(tmp_path: Path):
    home = Home(tmp_path)
    spool(home, "r1-a1", (1, 0.1), (2, 0.2), (3, 0.3), cut=True)
    spool(home, "r1-a2", (2, 0.5), (3, 0.6))
    assert num_points(home, run(None, 1)) == 3
    right = shown(LOSS.name, [1, 2, 3], [0.1, 0.5, 0.6])
    assert differences(api(right), home, run(None, 1)) == []


def test_points_of_an_attempt_that_never_said_where_it_began_are_not_expected(tmp_path: Path):
    home = Home(tmp_path)
    spool(home, "r1-a1", (1, 0.1), (2, 0.2))
    spool(home, "r1-a2", (2, 0.5))
    spool(home, "r1-a3", (3, 0.3))
    assert num_points(home, run(None, None, 2)) == 3


def test_lost_doubled_and_changed_points_are_named(tmp_path: Path):
    home = Home(tmp_path)
    spool(home, "r1-a1", (1, 0.1), (2, 0.2), (3, 0.3))
    wrong = shown(LOSS.name, [1, 3, 4], [0.1, 0.9, 0.4])
    [found] = differences(api(wrong), home, run(None))
    assert found == f"{LOSS.name}: lost [2], doubled or foreign [4], changed [3]"


def test_a_prompt_that_was_skipped_or_trained_twice_is_a_fault():
    right = api(shown(LEDGER_TRAINED.name, [1, 2, 3], [0, 4, 8]))
    assert prompt_faults(right, run(None), prompts_per_step=4) == []
    wrong = api(shown(LEDGER_TRAINED.name, [1, 3], [0, 13]))
    assert prompt_faults(wrong, run(None), prompts_per_step=4) == [3, 2]


def test_the_report_misses_nothing_that_went_wrong():
    tally = Tally()
    tally.by_target["driver"].answers += [1.0, 3.0, 40.0]
    tally.by_target["driver"].late = 1
    whole = report(tally, 4)
    assert whole.rows == [("driver", "4", "3.0 s", "40.0 s", "1")]
    assert whole.missed == ["answers took more than a minute: driver"]
    tally.false_failed.append("failed: no reason")
    tally.differences.append("a series")
    tally.prompts.append("r1: steps [3]")
    tally.left.append("ray::Worker")
    assert len(report(tally, 4).missed) == 5


def test_every_target_has_a_name_of_its_own():
    assert len({target.name for target in TARGETS}) == len(TARGETS) == 11
