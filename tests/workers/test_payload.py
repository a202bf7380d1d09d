import errno
import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from workers import payload
from workers.payload import write_payload


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_weights_in_shared_memory_are_for_their_owner_alone(tmp_path: Path) -> None:
    weights = {"a": np.arange(3, dtype=np.float32)}
    path = write_payload(weights, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_file(path)["a"].tolist() == [0.0, 1.0, 2.0]


def test_a_payload_that_does_not_fit_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(payload, "serialize_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_payload({"a": np.zeros(3, dtype=np.float32)}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_array_that_is_no_weight_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no weight format"):
        write_payload({"a": np.arange(3)}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f"lagoon-weights-{gone.pid}-0123456789abcdef.safetensors"
    on_its_way = tmp_path / f"lagoon-weights-{os.getpid()}-0123456789abcdef.safetensors"
    for path in (left, on_its_way):
        path.write_bytes(b"weights")
    written = write_payload({"w": np.zeros(2, np.float32)}, tmp_path)
    assert set(tmp_path.iterdir()) == {on_its_way, written}
