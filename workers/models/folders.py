"""Find, build and check model folders in Hugging Face format."""

import fcntl
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from lagoon.models import MODELS, CacheShape, known_model
from workers.models.pinned import build_pinned
from workers.models.recipes import SMOLLM2, TINY, MissingWeights, Recipe, fingerprint

Progress = Callable[[str], None]
"""Takes a line that says how far a build is."""
Builder = Callable[[Path, Progress], dict[str, Any]]
REPORT = "build.json"
"""The file in a built model's folder that says how it was built and what it can do."""
UNFINISHED = ".building-"
"""How the names of folders begin in which a model is being built."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
REQUIRED = {
    "configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
}
"""What a model folder holds, and the files that may hold it."""


class ModelError(ValueError):
    """A model that cannot be used, in one sentence."""


def model_folder(path: str, home: Path, progress: Progress = lambda line: None) -> Path:
    """The folder of the model that a run's ``model.path`` names.

    Built-in models are built when they are missing; a local folder is checked. A name of the form
    OWNER/NAME that is neither is fetched from the hub. Raises ``ModelError``.
    """
    if known_model(path):
        return build(path, home, progress)
    folder = Path(path).expanduser()
    if folder.is_dir():
        check_folder(folder)
        return folder.resolve()
    if HUB_ID.fullmatch(path):
        return _from_hub(path)
    names = ", ".join(model.name for model in MODELS)
    raise ModelError(f"model {path!r} is neither a folder nor a built-in model ({names})")


def check_folder(folder: Path) -> None:
    """Make sure that ``folder`` holds a configuration, a tokenizer and weights.

    Raises ``ModelError`` with the first that is missing.
    """
    for what, names in REQUIRED.items():
        if not any(any(folder.glob(name)) for name in names):
            raise ModelError(
                f"model folder {folder} has no {what} (looked for {' or '.join(names)})"
            )


def cache_shape(folder: Path) -> CacheShape | None:
    """What the model in ``folder`` keeps of every token, as its configuration has it.

    None where that does not follow from it: not every layer keeps all tokens, or not as keys and
    values.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        shape = CacheShape(int(layers), int(config.get("num_key_value_heads") or heads), int(size))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    has_windows = config.get("sliding_window") and config.get("use_sliding_window", True)
    others = {*(config.get("layer_types") or ())} - {"full_attention"}
    return None if has_windows or others or "kv_lora_rank" in config else shape


def build(name: str, home: Path, progress: Progress = lambda line: None) -> Path:
    """The folder of a built-in model under ``home/models/NAME``, built when it is missing.

    Folders are named by what made them, so that a changed recipe builds anew; only one process
    builds at a time, and an interrupted build leaves nothing that the next one does not remove.
    Raises ``ModelError``.
    """
    try:
        builder, folder = _builder(name), fingerprint(name)
    except MissingWeights as error:
        raise ModelError(str(error)) from error
    return built_once(home / "models" / name, folder, builder, progress)


def built_once(shelf: Path, name: str, builder: Builder, progress: Progress) -> Path:
    """``shelf/name``, filled by ``builder`` if it does not exist. Raises ``ModelError``."""
    folder = shelf / name
    if folder.is_dir():
        return folder
    shelf.mkdir(parents=True, exist_ok=True)
    with _locked(shelf / ".lock"):
        if not folder.is_dir():
            progress(f"building model {shelf.name} in {folder}")
            _build_into(folder, builder, progress)
    return folder


def _builder(name: str) -> Builder:
    if name == TINY:
        return _build_tiny
    if name == SMOLLM2:
        return _build_smollm2
    names = ", ".join(model.name for model in MODELS)
    raise ModelError(f"there is no built-in model {name!r}; there are {names}")


def _build_tiny(folder: Path, progress: Progress) -> dict[str, Any]:
    return build_pinned(Recipe(), folder, progress)


def _build_smollm2(folder: Path, progress: Progress) -> dict[str, Any]:
    # A driver, which finds its model built as a rule, need not wait seconds for torch.
    from workers.models.smollm2 import build_smollm2  # noqa: PLC0415  loads torch

    return build_smollm2(folder, progress)


def _build_into(folder: Path, builder: Builder, progress: Progress) -> None:
    """Build beside ``folder``, then move there in one step."""
    for left_over in folder.parent.glob(f"{UNFINISHED}*"):  # of a build that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    unfinished = Path(mkdtemp(prefix=UNFINISHED, dir=folder.parent))
    try:
        report = builder(unfinished, progress)
        (unfinished / REPORT).write_text(json.dumps(report, indent=2) + "\n")
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except MissingWeights as error:
        raise ModelError(str(error)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the kernel releases it even when the process is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _from_hub(path: str) -> Path:
    try:
        return Path(snapshot_download(path))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"model {path!r} is no local folder and could not be fetched from the hub: {reason}"
        ) from error
