"""Evolution strategies at full parameter scale, synchronous."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from lagoon.evolution import NoiseKey, z_scores
from lagoon.methods.base import Evolution


class ES(Evolution):
    """ES at Scale (arXiv:2509.24372): Gaussian noise on all parameters, constant sigma.

    Members act greedily, so that all randomness is in the parameters; fitness is z-scored; the
    update is ``theta += alpha / N * sum z_i * noise_i``, with 1 / sigma absorbed in alpha. No
    antithetic pairs, no rank shaping, no weight decay, no Adam.
    """

    title = "ES at Scale (synchronous)"
    paper = "2509.24372"

    name: Literal["es"] = "es"

    population: int = Field(30, ge=2, le=65536)
    """Members per generation: perturbed copies of the policy."""
    sigma: float = Field(1e-3, gt=0)
    """Standard deviation of the noise on each weight."""
    alpha: float = Field(5e-4, gt=0)
    """Step size; half of sigma in the paper."""
    num_cases: int = Field(200, ge=1)
    """Tasks that every member of a generation plays; the same ones for all of them."""
    resample_cases: bool = False
    """Draw new tasks each generation. The paper plays the same training tasks all along."""
    noise: NoiseKey = "per_tensor"
    """Independent noise for every tensor, or the first published code's habit of giving tensors
    of one shape the same noise."""

    @property
    def members_per_generation(self) -> int:
        """The population."""
        return self.population

    @property
    def cases_per_member(self) -> int:
        """Tasks each member plays."""
        return self.num_cases

    @property
    def draws_new_cases(self) -> bool:
        """As configured."""
        return self.resample_cases

    @property
    def noise_key(self) -> NoiseKey:
        """As configured."""
        return self.noise

    def sigma_at(self, generation: int, num_generations: int) -> float:
        """Constant."""
        return self.sigma

    def alpha_at(self, generation: int, num_generations: int) -> float:
        """Constant."""
        return self.alpha

    def shape(self, fitness: Sequence[float]) -> list[float]:
        """Z-scores with the population deviation; zero without spread."""
        return z_scores(fitness)
