"""Where the time of a step goes: which process does what, and what a step took."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cpu_time import ROLES, CpuTime, roles
from benchmarks.step_time import parts, report
from benchmarks.study import step_ends
from lagoon import metrics as m

TITLES = {
    10: "python -m benchmarks.step_time",
    11: "python -m cli.main train run.yaml",
    12: "gcs_server",
    13: "raylet",
    14: "ray::GeneratorActor.collect",
    15: "python forkserver",
    16: "VLLM::EngineCore",
    17: "ray::TrainerActor",
    18: "python a child of the trainer",
    20: "somebody else",
}
PARENTS = {11: 10, 12: 11, 13: 11, 14: 13, 15: 14, 16: 15, 17: 13, 18: 17, 10: 1, 20: 1}


def test_each_process_of_a_run_has_one_role() -> None:
    assert roles(10, PARENTS, TITLES) == {
        11: "driver",
        12: "Ray",
        13: "Ray",
        14: "generator",
        15: "engine",
        16: "engine",
        17: "trainer",
        18: "trainer",
    }


def fake_process(proc: Path, pid: int, ticks: int) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "cmdline").write_bytes(TITLES[pid].replace(" ", "\0").encode())
    fields = ["S", str(PARENTS[pid]), *["0"] * 9, str(ticks), "0", "0"]
    (folder / "stat").write_text(f"{pid} (a name) {' '.join(fields)}")


def looked(proc: Path) -> CpuTime:
    """The engine takes 1 s in each of ten seconds, and the trainer ends after the fifth."""
    cpu = CpuTime(10, proc=proc)
    for second in range(11):
        for pid in PARENTS:
            fake_process(proc, pid, ticks=100 * second if pid == 16 else 0)
        fake_process(proc, 17, ticks=200)
        if second > 5:
            (proc / "17" / "stat").unlink()
        cpu.look(float(second))
    return cpu


def test_what_a_role_took_is_counted_between_two_moments_and_an_ended_process_stays_counted(
    tmp_path: Path,
) -> None:
    cpu = looked(tmp_path)
    taken = cpu.between(2.0, 8.0)
    assert taken == dict.fromkeys(ROLES, 0.0) | {"engine": 6.0}
    with pytest.raises(ValueError, match="not within"):
        cpu.between(2.0, 11.0)


def step(number: int, at: float, *pairs: tuple[m.Metric, float]) -> dict[str, Any]:
    found = [{"name": metric.name, "value": value} for metric, value in pairs]
    return {"type": "step", "step": number, "at": at, "points": found}


def test_a_step_is_split_into_phases_processes_and_the_rest(tmp_path: Path) -> None:
    phases = ((m.GENERATE_SECONDS, 0.5), (m.TRAIN_SECONDS, 0.8), (m.PUBLISH_SECONDS, 0.2))
    events = [
        step(0, 1.0, (m.HELDOUT_SUCCESS, 0.3)),
        *(step(number, 2.0 * number, *phases) for number in (1, 2, 3, 4)),
        step(4, 9.0, (m.HELDOUT_SUCCESS, 0.3)),  # an evaluation is no part of a step
    ]
    assert step_ends(events) == {1: 2.0, 2: 4.0, 3: 6.0, 4: 8.0}
    found = parts(events, looked(tmp_path), warmup_steps=1)
    assert found.wall == 2.0
    assert found.rest == pytest.approx(0.5)
    assert found.cpu["engine"] == 2.0
    table = report({"preset: both cores in turn": [found], "a core each": [found]}, 3)
    assert table.rows[0][2] == "2.00 [2.00..2.00]"
