"""A small disk of its own for a run's checkpoints, which can be filled and emptied again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lagoon.checkpoints import DamagedCheckpoint, read_manifest, verified

NUM_MIB = 96
BLOCK_BYTES = 64 * 1024
FILLER = "filler"


class CannotMount(Exception):
    """The machine does not let us mount anything."""


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A tmpfs at ``place``, gone at the end. Raises ``CannotMount`` with the reason."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={NUM_MIB}m,mode=0700", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotMount(getattr(error, "stderr", "") or str(error)) from error
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave no room on the disk at ``place``."""
    with suppress(OSError), (place / FILLER).open("ab", buffering=0) as file:
        while True:
            file.write(bytes(BLOCK_BYTES))


def make_room(place: Path) -> None:
    """Take back what ``fill`` took."""
    (place / FILLER).unlink()


def whole(place: Path) -> dict[str, int]:
    """The checkpoints at ``place`` of which every file is as it was written, with their steps."""
    found = {}
    for folder in _folders(place):
        with suppress(DamagedCheckpoint):
            manifest = read_manifest(folder)
            verified(folder, method=manifest.method, model=manifest.model)
            found[folder.name] = manifest.step
    return found


def unfinished(place: Path) -> list[str]:
    """What lies at ``place`` and is neither a checkpoint nor the filler."""
    good = whole(place)
    return sorted(p.name for p in place.iterdir() if p.name != FILLER and p.name not in good)


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir())
