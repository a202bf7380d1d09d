from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.checkpoints import (
    MANIFEST,
    DamagedCheckpoint,
    Manifest,
    described_files,
    read_manifest,
    seal,
    verified,
)


def checkpoint(folder: Path) -> Manifest:
    (folder / "lagoon").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    (folder / "lagoon" / "loop.json").write_text("{}")
    manifest = Manifest(
        at=1.0,
        step=4,
        method="grpo",
        model="tiny",
        is_final=False,
        heldout_success=0.5,
        files=described_files(folder),
    )
    seal(folder, manifest)
    return manifest


def test_a_whole_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = checkpoint(tmp_path / "c")
    assert verified(tmp_path / "c", method="grpo", model="tiny") == written
    assert written.num_bytes == 7002


def test_a_folder_without_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoint(tmp_path / "c")
    (tmp_path / "c" / MANIFEST).unlink()
    with pytest.raises(DamagedCheckpoint, match="cut short"):
        read_manifest(tmp_path / "c")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', "\x00"])
def test_a_manifest_that_cannot_be_read_is_said_to_be_so(tmp_path: Path, text: str) -> None:
    checkpoint(tmp_path / "c")
    (tmp_path / "c" / MANIFEST).write_text(text)
    with pytest.raises(DamagedCheckpoint, match="manifest cannot be read"):
        read_manifest(tmp_path / "c")


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/../../b", MANIFEST])
def test_a_manifest_names_no_file_outside_its_checkpoint(tmp_path: Path, name: str) -> None:
    manifest = checkpoint(tmp_path / "c")
    text = manifest.model_dump_json().replace("model.safetensors", name)
    (tmp_path / "c" / MANIFEST).write_text(text)
    with pytest.raises(DamagedCheckpoint):
        read_manifest(tmp_path / "c")


@given(cut=st.integers(0, 6999), flipped=st.booleans())
def test_any_cut_or_flipped_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flipped: bool
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint") / "c"
    checkpoint(folder)
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    if flipped:
        content[cut] ^= 1
    else:
        del content[cut:]
    file.write_bytes(bytes(content))
    with pytest.raises(DamagedCheckpoint, match=r"model\.safetensors"):
        verified(folder, method="grpo", model="tiny")


def test_another_method_another_model_and_a_missing_file_are_named(tmp_path: Path) -> None:
    checkpoint(tmp_path / "c")
    with pytest.raises(DamagedCheckpoint, match="trained by grpo, not by es"):
        verified(tmp_path / "c", method="es", model="tiny")
    with pytest.raises(DamagedCheckpoint, match="of the model 'tiny', not of 'other'"):
        verified(tmp_path / "c", method="grpo", model="other")
    (tmp_path / "c" / "lagoon" / "loop.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"loop\.json is missing"):
        verified(tmp_path / "c", method="grpo", model="tiny")
