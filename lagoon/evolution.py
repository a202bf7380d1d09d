"""Evolution strategies: everything that is arithmetic on seeds and scalars (arXiv:2509.24372).

Noise itself meets a tensor in ``workers/perturbation.py`` alone.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

NoiseKey = Literal["per_tensor", "reference_compatible"]
SEED_BOUND = 2**30


def member_seeds(run_seed: int, generation: int, population: int) -> list[int]:
    """The seeds of a generation's members: distinct, and a function of the arguments alone."""
    stream = np.random.default_rng((run_seed, generation))
    seeds: dict[int, None] = {}
    while len(seeds) < population:
        seeds[int(stream.integers(0, SEED_BOUND))] = None
    return list(seeds)


def tensor_id(name: str) -> int:
    """A stable 64-bit number of a tensor's name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def noise_seed(member_seed: int, tensor_name: str, key: NoiseKey = "per_tensor") -> int:
    """The generator seed of one tensor's noise.

    ``per_tensor`` mixes in the name, so that tensors of one shape get independent noise;
    ``reference_compatible`` restarts the member's seed for every tensor, as the first published
    code did: equal shapes then share their noise.
    """
    return member_seed if key == "reference_compatible" else member_seed ^ tensor_id(tensor_name)


def non_finite(fitness: Sequence[float]) -> list[int]:
    """The positions of members whose fitness is NaN or infinite: no update may learn from them."""
    return [position for position, value in enumerate(fitness) if not math.isfinite(value)]


def z_scores(fitness: Sequence[float], epsilon: float = 1e-8) -> list[float]:
    """``(R - mean) / (population std + epsilon)`` in float64; exactly 0 without spread."""
    values = np.asarray(fitness, dtype=np.float64)
    if values.size == 0 or values.max() == values.min():
        return [0.0] * len(values)
    return [float(z) for z in (values - values.mean()) / (values.std() + epsilon)]


def update_norm_law(alpha: float, num_parameters: int, population: int) -> float:
    """Expected norm of an update of z-scored members: ``alpha * sqrt(d / N)``."""
    return float(alpha * np.sqrt(num_parameters / population))
