"""Weights on their way from the trainer to a generator: arrays by checkpoint name, their checksum,
and the file in shared memory they travel in.

A bfloat16 tensor is an array of its bits (uint16): numpy has no such type, and no weight is an
integer. Needs neither torch nor vLLM.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize_file

Weights = Mapping[str, NDArray[Any]]

SHARED_MEMORY = Path("/dev/shm")
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

    Only this user can read it: shared memory is a folder that all users share.

    Raises ``TypeError`` for an array that is not a floating-point weight.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    tensors = {name: _tensor(name, array) for name, array in arrays.items()}
    path = folder / f"lagoon-weights-{secrets.token_hex(8)}.safetensors"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        serialize_file(tensors, str(path))
    except BaseException:  # shared memory is full: what is half written must not fill it, too
        path.unlink()
        raise
    return path


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
