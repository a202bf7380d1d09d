"""What a method is: a frozen object whose fields are a paper's hyperparameters and whose methods
are its mathematics. Two families, one per loop. A method holds no state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from lagoon.evolution import NoiseKey, non_finite
from lagoon.section import Section
from lagoon.selection import PooledGroup, Selection, oldest_first

if TYPE_CHECKING:
    from lagoon.clashes import Clash
    from lagoon.config import RunConfig
    from lagoon.drift import Drift
    from lagoon.losses import Loss, TokenBatch

WeightUpdateMode = Literal["keep", "wait", "abort"]
"""What becomes of episodes in flight when a generator is given new weights: they are frozen and go
on with them, the update waits for their end, or their turns are cut and begun again from where they
were."""
EVERY_MODE: tuple[WeightUpdateMode, ...] = get_args(WeightUpdateMode)


class Method(Section):
    """A training method. Subclass one of its two families, in a file named like the method."""

    family: ClassVar[Literal["policy_gradient", "evolution"]]
    title: ClassVar[str]
    """The name shown to people."""
    paper: ClassVar[str]
    """arXiv id of the paper whose formulas the class holds."""
    default_temperature: ClassVar[float]
    """Sampling temperature of rollouts when the run does not set one."""
    live: ClassVar[tuple[str, ...]] = ()
    """Fields that may change while a run goes on (``lagoon/controls.py``): the loop reads them for
    each decision."""

    def clashes(self, config: RunConfig) -> list[Clash]:
        """Combinations with the rest of the run that this method cannot honour."""
        return []


class PolicyGradient(Method):
    """A method whose update is a gradient of log-probabilities (``loops/policy_gradient.py``)."""

    family = "policy_gradient"
    default_temperature = 1.0

    @property
    @abstractmethod
    def prompts_per_step(self) -> int:
        """Groups that one update trains on."""

    @property
    @abstractmethod
    def trajectories_per_prompt(self) -> int:
        """Trajectories sampled for each prompt."""

    @property
    @abstractmethod
    def staleness_bound(self) -> int | None:
        """Policy versions by which admission lets a group lag, as long as groups are trained in the
        order that they were started in; 0 is synchronous training, None no bound at all."""

    @property
    def hard_bound(self) -> int | None:
        """Policy versions by which no trained token may lag, whatever happened since admission:
        what lags more is dropped when a batch is drawn. None: nothing is."""
        return None

    @property
    def pool_target(self) -> int:
        """Groups that the method aims to hold ready when a batch is drawn."""
        return self.prompts_per_step

    @property
    def weight_update_modes(self) -> tuple[WeightUpdateMode, ...]:
        """What the run may choose for episodes in flight, the method's own choice first.

        Empty for synchronous training, where no episode is in flight when weights change.
        """
        return () if self.staleness_bound == 0 else EVERY_MODE

    @property
    def needs_behavior(self) -> bool:
        """True when the loss reads the behavior log-probabilities: a trajectory that lacks one is
        then not trained on."""
        return True

    @property
    def needs_scores(self) -> bool:
        """True when the selection needs the pool's log-probabilities under the trainer's policy: a
        forward pass over the trajectories that older versions have a token of."""
        return False

    @property
    def rescores(self) -> bool:
        """True when a method that ``needs_scores`` needs them of the present version. Else those of
        the version at which a group was first looked at will do, and of trajectories that no new
        version came into none are needed."""
        return True

    def select(
        self, pool: Sequence[PooledGroup], version: int, memory: Mapping[str, float]
    ) -> Selection:
        """What is taken from the pool (oldest first) to be trained on at ``version``.

        ``memory`` is what the last selection left; empty at a run's start. It is asked for again
        with every change of the pool until there is a batch; a method that ``needs_scores`` only
        when the pool has one. So a controller moves its state when it finds one, and only then.
        """
        return oldest_first(
            pool,
            version,
            memory,
            batch_size=self.prompts_per_step,
            hard_bound=self.hard_bound,
        )

    def remember(self, memory: Mapping[str, float], found: Drift) -> Mapping[str, float]:
        """``memory`` after an update whose batch had drifted as ``found``, for the next selection.

        That is as it was, unless the method learns from it.
        """
        return memory

    @property
    def needs_reference(self) -> bool:
        """True when the loss compares with the initial policy."""
        return False

    @property
    def needs_proximal(self) -> bool:
        """True when the loss reads the log-probabilities of the policy of one update ago."""
        return False

    @abstractmethod
    def advantages(self, rewards: Sequence[float]) -> list[float]:
        """Advantages of one group, in the order of its rewards."""

    @abstractmethod
    def token_weights(self, lengths: Sequence[int]) -> list[float]:
        """The weight of every token of each trajectory of a batch, from their action counts."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> Loss:
        """The loss of a (micro-)batch, as a sum over its tokens."""


class Evolution(Method):
    """A method whose update is a weighted sum of noise (``loops/evolution.py``)."""

    family = "evolution"
    default_temperature = 0.0

    @property
    @abstractmethod
    def members_per_generation(self) -> int:
        """Perturbed policies evaluated for one update."""

    @property
    @abstractmethod
    def cases_per_member(self) -> int:
        """Tasks that every member of a generation is evaluated on."""

    @property
    @abstractmethod
    def draws_new_cases(self) -> bool:
        """True when every generation plays other tasks; False when all play the same ones."""

    @property
    def noise_key(self) -> NoiseKey:
        """How a member's seed becomes the seed of each tensor's noise."""
        return "per_tensor"

    @abstractmethod
    def sigma_at(self, generation: int, num_generations: int) -> float:
        """Perturbation scale of a generation (counted from 0)."""

    @abstractmethod
    def alpha_at(self, generation: int, num_generations: int) -> float:
        """Step size of a generation (counted from 0)."""

    @abstractmethod
    def shape(self, fitness: Sequence[float]) -> list[float]:
        """Weights of the members' noise, from their fitness."""

    def coefficients(self, fitness: Sequence[float], alpha: float) -> list[float]:
        """What each member's noise is multiplied with in the update: ``alpha / N * shape``.

        Raises ``ValueError`` for a fitness that is not finite: one would be in every weight.
        """
        wrong = non_finite(fitness)
        if wrong:
            raise ValueError(f"the fitness of member {wrong[0]} is {fitness[wrong[0]]}")
        return [alpha / len(fitness) * weight for weight in self.shape(fitness)]
