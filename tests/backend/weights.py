"""Checkpoints on the disk, as a driver leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def weights(home: Path, run_id: str, step: int, size: int, **changes: Any) -> dict[str, Any]:
    """A checkpoint on the disk, and its event."""
    folder = home / "attempts" / f"{run_id}-a1" / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w" * size)
    return {
        "type": "checkpoint",
        "at": 1.9e9 + step,
        "step": step,
        "path": str(folder),
        "is_final": False,
        **changes,
    }
