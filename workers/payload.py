"""Weights on their way from the trainer to a generator: arrays by checkpoint name, their checksum,
and the file in shared memory they travel in.

A bfloat16 tensor is an array of its bits (uint16): numpy has no such type, and no weight is an
integer. Needs neither torch nor vLLM.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize_file

Weights = Mapping[str, NDArray[Any]]

SHARED_MEMORY = Path("/dev/shm")
PAYLOAD = "lagoon-weights"
WIRE_DTYPES = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}


def checksum(weights: Weights) -> str:
    """SHA-256 over every tensor's name and bytes, in the order of the names."""
    return checksum_of((name, _bytes(weights[name])) for name in sorted(weights))


def checksum_of(items: Iterable[tuple[str, memoryview]]) -> str:
    """SHA-256 over names and bytes in the order they come; the caller sorts."""
    digest = hashlib.sha256()
    for name, data in items:
        digest.update(name.encode())
        digest.update(data)
    return digest.hexdigest()


def write_payload(weights: Weights, folder: Path = SHARED_MEMORY) -> Path:
    """Write ``weights`` as a safetensors file in shared memory; who wrote it unlinks it.

    Only this user can read it: shared memory is a folder that all users share. What a writer left
    that was killed is removed by the next one: it would fill the memory until the machine restarts.

    Raises ``TypeError`` for an array that is not a floating-point weight.
    """
    _remove_left_over(folder)
    arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    tensors = {name: _tensor(name, array) for name, array in arrays.items()}
    path = folder / f"{PAYLOAD}-{os.getpid()}-{secrets.token_hex(8)}.safetensors"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        serialize_file(tensors, str(path))
    except BaseException:  # shared memory is full: what is half written must not fill it, too
        path.unlink()
        raise
    return path


def _remove_left_over(folder: Path) -> None:
    """Remove this user's payloads whose writers are gone."""
    for path in folder.glob(f"{PAYLOAD}-*-*.safetensors"):
        pid = path.name.split("-")[-2]
        with contextlib.suppress(OSError):  # another writer was faster, or it is somebody else's
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                path.unlink()


def _tensor(name: str, array: NDArray[Any]) -> TensorSpec:
    """Points at the array's memory, which must outlive the description."""
    if array.dtype.name not in WIRE_DTYPES:
        raise TypeError(f"weight {name} is {array.dtype.name}, which is no weight format")
    return TensorSpec(
        dtype=WIRE_DTYPES[array.dtype.name],
        shape=array.shape,
        data_ptr=array.ctypes.data,
        data_len=array.nbytes,
    )


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
