"""Write model folders in Hugging Face format: new weights with everything else of their model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".index.json")


def partials(folder: Path) -> tuple[Path, Path]:
    """The weights' file, and the folder, that become ``folder`` when they are complete."""
    return (
        folder.with_name(folder.name + ".partial.safetensors"),
        folder.with_name(folder.name + ".partial"),
    )


def weights_beside(folder: Path) -> Path:
    """Where to write the weights before ``save_model_folder`` moves them into ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return partials(folder)[0]


def save_model_folder(folder: Path, model_folder: Path, dtype: str, weights: Path) -> None:
    """Make ``folder`` a copy of ``model_folder`` with the file ``weights``, which moves there.

    The folder appears only when it is complete. ``dtype`` is the weights' number format.
    """
    partial = partials(folder)[1]
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in model_folder.iterdir():
        if file.is_file() and not file.name.endswith(WEIGHT_SUFFIXES):
            shutil.copyfile(file, partial / file.name)
    config = json.loads((partial / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = dtype
    (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights.rename(partial / "model.safetensors")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
