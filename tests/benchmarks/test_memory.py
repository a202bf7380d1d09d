"""Whose memory is whose."""

import os
from pathlib import Path

import pytest

from benchmarks.memory import Process, memory_of, processes, services
from cli.home import Home
from cli.processes import Stack, record
from lagoon.proc import proportional_bytes


def process(pid: int, parent: int, *, is_marked: bool = False) -> tuple[int, Process]:
    return pid, Process(pid, parent, is_marked)


def test_a_process_counts_for_the_nearest_service_above_it():
    found = dict(
        [
            process(1, 0),
            process(10, 1, is_marked=True),
            process(11, 10, is_marked=True),
            process(12, 11, is_marked=True),
            process(13, 12),  # it has written over its environment
            process(14, 1, is_marked=True),  # its parent is gone
            process(15, 14),
            process(20, 1),
        ]
    )
    assert services(found, {10: "lagoon up", 11: "ray"}) == {
        10: "lagoon up",
        11: "ray",
        12: "ray",
        13: "ray",
        14: "other",
        15: "other",
    }


def fake_process(proc: Path, pid: int, parent: int, *, mark: str = "", pss: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(f"A=1\0{mark}\0".encode())
    (folder / "stat").write_text(f"{pid} (a (strange) name) S {parent} 0 0")
    (folder / "smaps_rollup").write_text(f"0-f rollup\nRss: 900 kB\nPss: {pss} kB\nPss_Anon: 7 kB")


def test_processes_are_read_with_parent_and_mark(tmp_path):
    fake_process(tmp_path, 5, 1, mark="LAGOON_HOME=/home/one")
    fake_process(tmp_path, 6, 5, mark="LAGOON_HOME=/home/one-more")
    (tmp_path / "7").mkdir()  # it ends while one looks
    (tmp_path / "self").mkdir()
    assert processes(Home(Path("/home/one")), tmp_path) == dict(
        [process(5, 1, is_marked=True), process(6, 5)]
    )


def test_memory_is_the_proportional_set_size_alone(tmp_path):
    fake_process(tmp_path, 5, 1, pss=300)
    assert proportional_bytes(5, tmp_path) == 300 * 1024
    assert proportional_bytes(6, tmp_path) == 0


def test_a_stack_is_summed_by_service_with_the_largest_first(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    own = record("up", os.getpid())
    service = record("api", os.getppid())
    assert own
    assert service
    Stack("mark", own, (service,)).save(home.stack_file)
    proc = tmp_path / "proc"
    proc.mkdir()
    fake_process(proc, own.pid, 1, pss=10)
    fake_process(proc, service.pid, 1, pss=20)
    fake_process(proc, 3, service.pid, pss=5)
    sizes = memory_of(home, proc)
    assert list(sizes.items()) == [("api", 25 * 1024), ("lagoon up", 10 * 1024)]


def test_without_a_stack_there_is_no_memory_to_tell(tmp_path):
    with pytest.raises(RuntimeError, match="nothing is up"):
        memory_of(Home(tmp_path))
