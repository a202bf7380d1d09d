"""What the trainer does: a policy in torch and its optimizer.

::

    samples ─▶ micro-batches ─▶ log-probabilities ─▶ method.loss ─▶ backward ┐ (summed)
               weights ◀─ optimizer step ◀─ clip ◀─ refuse NaN ◀─ gradient ◀─┘
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lagoon.checkpoints import OPTIMIZER
from lagoon.config import RunConfig, TrainerConfig
from lagoon.drift import TokenScores, drift, drift_points
from lagoon.losses import ImportanceWeights, TokenBatch
from lagoon.methods import PolicyGradient
from lagoon.metrics import (
    ENTROPY,
    GRAD_NORM,
    KL_BEHAVIOR,
    LEARNING_RATE,
    LOSS,
    MISMATCH,
    Metric,
)
from lagoon.points import Point
from lagoon.trajectory import TrainingSample
from workers.microbatches import MicroBatch, by_trajectory, micro_batches
from workers.models.writing import save_model_folder, weights_beside
from workers.optimizer import Optimizer
from workers.packing import alone, sharing_prompts
from workers.payload import checksum
from workers.policy import Policy

Sums = dict[Metric, tuple[float, float]]
"""(sum, count) of each metric."""


class NonFiniteGradient(ArithmeticError):
    """The gradient is NaN or infinite; the step was refused and the weights are as they were."""


class Trainer:
    """A model that takes optimizer steps on batches of trajectories."""

    def __init__(
        self,
        model_folder: Path,
        config: RunConfig,
        checkpoint: Path | None = None,
        version: int = 0,
    ) -> None:
        """The policy of ``model_folder``, or that of ``checkpoint`` after ``version`` steps.

        A penalty's reference is the model folder's in either case.
        """
        method, settings = config.method, config.trainer
        if not isinstance(method, PolicyGradient) or settings is None:
            raise TypeError(f"{method.title} takes no gradient steps")
        torch.set_num_threads(max(1, int(settings.cpus)))
        torch.manual_seed(config.seed)
        self.version = version
        """Optimizer steps taken since the model folder."""
        self.drift: list[Point] = []
        """How far the policy was, at the last step, from those that had sampled its batch."""
        self._model_folder = model_folder
        self._dtype = config.model.dtype
        self._method: PolicyGradient = method
        self._settings: TrainerConfig = settings
        self._device = torch.device("cuda" if settings.gpus > 0 else "cpu")
        model = self._loaded(checkpoint or model_folder)
        self._policy = Policy(model, config.rollout.temperature or 0.0)
        self._reference: Policy | None = None
        if method.needs_reference:
            frozen = copy.deepcopy(model) if checkpoint is None else self._loaded(model_folder)
            self._reference = Policy(frozen.requires_grad_(False), self._policy.temperature)
        self._optimizer = Optimizer(dict(model.named_parameters()), settings)
        if checkpoint is not None:
            self._optimizer.load(load_file(checkpoint / OPTIMIZER))

    def _loaded(self, folder: Path) -> Any:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, self._dtype), local_files_only=True
        ).to(self._device)
        # Dropout would train another policy than the one that sampled.
        return model.eval()

    def step(
        self, samples: Sequence[TrainingSample], learning_rate: float
    ) -> dict[str, tuple[float, float]]:
        """One optimizer step on all ``samples``; returns (sum, count) by metric name.

        Raises ``NonFiniteGradient``, leaving weights and optimizer as they were.
        """
        sums: Sums = {}
        scores: dict[int, TokenScores] = {}
        for batch in self._micro_batches(samples):
            _add(sums, self._accumulate(batch, scores))
            self._optimizer.collect_gradient()
        norm = self._optimizer.gradient_norm()
        if not math.isfinite(norm):
            self._optimizer.drop_gradient()
            raise NonFiniteGradient(
                f"the gradient of step {self.version + 1} is {norm}: the step was refused, the "
                f"weights are those of step {self.version}"
            )
        trajectories = [sample.trajectory for sample in samples]
        found = [scores.get(index, TokenScores(())) for index in range(len(samples))]
        self.drift = drift_points(drift(trajectories, found, self.version))
        self._optimizer.step(learning_rate, norm)
        self.version += 1
        _add(sums, {GRAD_NORM: (norm, 1.0), LEARNING_RATE: (learning_rate, 1.0)})
        sums[LOSS] = (sums.get(LOSS, (0.0, 0.0))[0], 1.0)
        return {metric.name: pair for metric, pair in sums.items()}

    def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        """Log-probabilities of each sample's own tokens under the present weights, at the run's
        temperature unless another is given.
        """
        found: dict[int, list[float]] = {}
        with torch.no_grad():
            for batch in self._micro_batches(samples):
                found.update(by_trajectory(batch, self._policy.logprobs(batch, temperature)))
        return [found[index] for index in range(len(samples))]

    def weights(self) -> tuple[dict[str, NDArray[Any]], str]:
        """A copy of the weights by checkpoint name, and its checksum.

        bfloat16 comes as its bits (uint16). A head tied to the embedding is left out.
        """
        weights = {
            name: _array(parameter) for name, parameter in self._policy.model.named_parameters()
        }
        return weights, checksum(weights)

    def save(self, folder: Path) -> None:
        """Write the weights as a Hugging Face folder, tokenizer included, and the optimizer's state
        as a part of the checkpoint that it becomes."""
        weights = weights_beside(folder)
        tensors = {
            name: parameter.detach().cpu().contiguous()
            for name, parameter in self._policy.model.named_parameters()
        }
        save_file(tensors, weights, metadata={"format": "pt"})
        save_model_folder(folder, self._model_folder, self._dtype, weights)
        (folder / OPTIMIZER).parent.mkdir(exist_ok=True)
        save_file(self._optimizer.state(), folder / OPTIMIZER)

    def _micro_batches(self, samples: Sequence[TrainingSample]) -> Iterator[MicroBatch]:
        max_tokens = self._settings.microbatch_tokens
        trajectories = [sample.trajectory for sample in samples]
        shares = self._policy.shares_prompts
        rows = sharing_prompts(trajectories, max_tokens) if shares else alone(trajectories)
        return micro_batches(samples, rows, max_tokens, self._device)

    def _accumulate(self, batch: MicroBatch, scores: dict[int, TokenScores]) -> Sums:
        """Add the gradient of one micro-batch, and what it found of each trajectory's tokens to
        ``scores``; return its metrics."""
        if not bool(batch.action_mask.any()):
            return {}
        logprobs = self._policy.logprobs(batch)
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                reference = self._reference.logprobs(batch)
        loss = self._method.loss(
            TokenBatch(
                logprobs=logprobs,
                behavior_logprobs=batch.behavior_logprobs,
                advantages=batch.advantages,
                weights=batch.weights,
                reference_logprobs=reference,
                # A batch is one step: the policy before the update is the present one.
                proximal_logprobs=logprobs.detach(),
                trajectories=batch.trajectories,
            )
        )
        scores.update(_scores_of(batch, logprobs.detach(), loss.importance))
        loss.value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        observed = _observed(batch, logprobs.detach(), self.version)
        return {**loss.metrics, **observed, LOSS: (float(loss.value.detach()), 1.0)}


def _observed(batch: MicroBatch, logprobs: torch.Tensor, version: int) -> Sums:
    """What is worth knowing of a micro-batch before the step, whatever the method."""
    mask = batch.action_mask
    difference = (logprobs - batch.behavior_logprobs)[mask]
    same_version = (batch.versions == version)[mask]
    count = float(mask.sum())
    divergence = difference.exp() - difference - 1.0
    return {
        ENTROPY: (float(-logprobs[mask].sum()), count),
        KL_BEHAVIOR: (float(divergence.sum()), count),
        MISMATCH: (float(difference[same_version].abs().sum()), float(same_version.sum())),
    }


def _scores_of(
    batch: MicroBatch, logprobs: torch.Tensor, importance: ImportanceWeights | None
) -> dict[int, TokenScores]:
    """What a micro-batch shows of the sampled tokens of each trajectory, by its position."""
    found = dict(by_trajectory(batch, logprobs))
    if importance is None:
        return {index: TokenScores(scores) for index, scores in found.items()}
    cuts = (importance.below, importance.above, importance.is_masked)
    below, above, masked = (dict(by_trajectory(batch, cut)) for cut in cuts)
    return {
        index: TokenScores(scores, below[index], above[index], masked[index])
        for index, scores in found.items()
    }


def _add(sums: Sums, more: Sums) -> None:
    for metric, (value, count) in more.items():
        before = sums.get(metric, (0.0, 0.0))
        sums[metric] = (before[0] + value, before[1] + count)


def _array(parameter: torch.Tensor) -> NDArray[Any]:
    tensor = parameter.detach().to("cpu", copy=True).contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    array: NDArray[Any] = tensor.numpy()
    return array
