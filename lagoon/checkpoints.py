"""What a checkpoint is made of, and whether it is whole.

::

    step-000040/
      config.json  tokenizer.json  model.safetensors     a model folder, usable by anybody
      lagoon/
        optimizer.safetensors                            what the trainer needs to go on
        critic.safetensors                               a critic and its optimizer, where one is
        loop.json                                        counters, pool, prompts in flight
        manifest.json                                    written last: names every other file

A folder without a manifest is not a checkpoint: its writing was cut short. The manifest has the
size and SHA-256 of every file, so a truncated or exchanged one is noticed before anything is
trained on it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

PARTS = "lagoon"
"""Folder, inside a checkpoint, of all that is not the model."""
MANIFEST = f"{PARTS}/manifest.json"
OPTIMIZER = f"{PARTS}/optimizer.safetensors"
CRITIC = f"{PARTS}/critic.safetensors"
LOOP = f"{PARTS}/loop.json"
UPDATES = "updates.jsonl"
"""Beside an evolution run's checkpoints: every update since the start of its attempt."""
READ_BYTES = 1024 * 1024


class DamagedCheckpoint(ValueError):
    """The folder is no checkpoint that a run can go on from. The message says why."""


class FileEntry(BaseModel):
    """One file of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """What a checkpoint holds, and what it is a checkpoint of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    at: float
    """Unix seconds."""
    step: int = Field(ge=0)
    """Policy version of the weights."""
    method: str
    """Name of the method that trained them."""
    model: str
    """``model.path`` of the run's config."""
    is_final: bool
    heldout_success: float | None
    """Greedy success of exactly these weights; None when they were not evaluated."""
    prompts: str = ""
    """What its ledger, pool and prompts in flight are of: the digest of seed, environment and sizes
    of batches. Empty: not known."""
    kept: tuple[str, ...] = ()
    """Paths of the run's other checkpoints at that moment, oldest first."""
    files: dict[str, FileEntry]

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, FileEntry]) -> dict[str, FileEntry]:
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or name == MANIFEST:
                raise ValueError(f"{name!r} is no file of the checkpoint")
        return files

    @property
    def num_bytes(self) -> int:
        """Size of all its files."""
        return sum(entry.num_bytes for entry in self.files.values())


def described_files(folder: Path) -> dict[str, FileEntry]:
    """Every file in ``folder`` but the manifest, by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    names.pop(MANIFEST, None)
    return {
        name: FileEntry(num_bytes=path.stat().st_size, sha256=_sha256(path))
        for name, path in names.items()
    }


def seal(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes ``folder`` a checkpoint; its files are on the disk before."""
    for name in manifest.files:
        _to_disk(folder / name)
    target = folder / MANIFEST
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _to_disk(partial)
    partial.replace(target)
    _to_disk(target.parent)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint. Raises ``DamagedCheckpoint``."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DamagedCheckpoint(
            "it has no manifest: its writing was cut short, or it is no checkpoint of Lagoon's"
        ) from error
    except (OSError, UnicodeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise DamagedCheckpoint(f"its manifest cannot be read: {first}") from error


def verified(folder: Path, *, method: str, model: str) -> Manifest:
    """The manifest, after every file was found as it says. Raises ``DamagedCheckpoint``."""
    manifest = read_manifest(folder)
    if manifest.method != method:
        raise DamagedCheckpoint(f"it was trained by {manifest.method}, not by {method}")
    if manifest.model != model:
        raise DamagedCheckpoint(f"it is of the model {manifest.model!r}, not of {model!r}")
    for name, entry in manifest.files.items():
        _refuse_other(folder / name, name, entry)
    return manifest


def _refuse_other(path: Path, name: str, entry: FileEntry) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise DamagedCheckpoint(f"its file {name} is missing") from error
    if found != entry.num_bytes:
        raise DamagedCheckpoint(f"its file {name} has {found} of {entry.num_bytes} bytes")
    if _sha256(path) != entry.sha256:
        raise DamagedCheckpoint(f"its file {name} is not the one that was written")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
