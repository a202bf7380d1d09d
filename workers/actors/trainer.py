"""The trainer, as a plain class that the driver wraps as a Ray actor.

Whoever only wants the class, as the driver does, does not load torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagoon.config import RunConfig
from lagoon.trajectory import TrainingSample
from workers.imports import uncollected
from workers.payload import Weights
from workers.step_report import StepReport

if TYPE_CHECKING:
    from workers.training import Trainer


class TrainerActor:
    """Takes optimizer steps on batches of trajectories, one call after the other."""

    def __init__(
        self,
        model_folder: str,
        config: dict[str, Any],
        threads: int,
        checkpoint: str | None = None,
        version: int = 0,
    ) -> None:
        self._model_folder = Path(model_folder)
        self._checkpoint, self._version = Path(checkpoint) if checkpoint else None, version
        self._config, self._threads = RunConfig.stored(config), threads
        self._loaded: Trainer | None = None

    def ready(self) -> None:
        """Load the model; raises what went wrong."""
        with uncollected():
            from workers.training import Trainer  # noqa: PLC0415  loads torch, in the actor alone

        self._loaded = Trainer(
            self._model_folder,
            self._config,
            self._checkpoint,
            self._version,
            threads=self._threads,
        )

    def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        """One optimizer step on all ``samples``.

        Raises ``workers.training.NonFiniteGradient`` with the weights as they were.
        """
        return self._trainer.step(samples, learning_rate)

    def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        """Log-probabilities of each sample's own tokens under the present weights, at the run's
        temperature unless another is given.
        """
        return self._trainer.logprobs(samples, temperature)

    def weights(self) -> tuple[Weights, str]:
        """A copy of the weights by checkpoint name, and its checksum."""
        return self._trainer.weights()

    def save(self, folder: str) -> None:
        """Write the weights as a Hugging Face folder, and the optimizer's state in it."""
        self._trainer.save(Path(folder))

    @property
    def _trainer(self) -> Trainer:
        if self._loaded is None:
            raise RuntimeError("the trainer has not loaded its model: call ready() first")
        return self._loaded
