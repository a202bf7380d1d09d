"""Vectors of other implementations."""

import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

FOLDER = Path(__file__).parent.parent / "golden"
COMPARED: dict[str, set[int]] = defaultdict(set)
"""The places of the cases of each file that some test has asked for."""


def cases(
    name: str, *functions: str, where: Callable[[dict], bool] = lambda case: True
) -> list[dict]:
    """The cases of a file: only those of ``functions`` when some are named, and where ``where``."""
    found = {
        place: case
        for place, case in enumerate(every_case(name))
        if (not functions or case["function"] in functions) and where(case)
    }
    assert found, f"{name} has no such case"
    COMPARED[name] |= found.keys()
    return list(found.values())


@cache
def every_case(name: str) -> list[dict]:
    """All cases of a file."""
    found: list[dict] = json.loads((FOLDER / f"{name}.json").read_text())["cases"]
    return found


def tensor(rows: list) -> torch.Tensor:
    """Rows of numbers in float64, whatever they are written as."""
    return torch.tensor(rows, dtype=torch.float64)


def padded(rows: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged rows as a tensor with zeros, and where they are."""
    width = max(len(row) for row in rows)
    values = tensor([row + [0.0] * (width - len(row)) for row in rows])
    mask = tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows])
    return values, mask
