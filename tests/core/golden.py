"""Vectors of other implementations."""

import json
from pathlib import Path

import torch

FOLDER = Path(__file__).parent.parent / "golden"


def cases(name: str, *functions: str) -> list[dict]:
    """The cases of a file; only those of ``functions`` when some are named."""
    found = json.loads((FOLDER / f"{name}.json").read_text())["cases"]
    return [case for case in found if not functions or case["function"] in functions]


def tensor(rows: list) -> torch.Tensor:
    """Rows of numbers in float64, whatever they are written as."""
    return torch.tensor(rows, dtype=torch.float64)


def padded(rows: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged rows as a tensor with zeros, and where they are."""
    width = max(len(row) for row in rows)
    values = tensor([row + [0.0] * (width - len(row)) for row in rows])
    mask = tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows])
    return values, mask
