"""What the trainer does: a policy in torch and its optimizer.

::

    samples ─▶ micro-batches ─▶ log-probabilities ─▶ method.loss ─▶ backward ┐ (summed)
       ▲       weights ◀─ optimizer step ◀─ clip ◀─ refuse NaN ◀─ gradient ◀─┘
       └─ advantages of each token, from a critic (``critic.py``), for methods that have one
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

from lagoon.checkpoints import CRITIC, OPTIMIZER
from lagoon.config import RunConfig, TrainerConfig
from lagoon.corrections import interpolated_proximal
from lagoon.drift import TokenScores
from lagoon.losses import Loss, TokenBatch
from lagoon.methods import PolicyGradient
from lagoon.methods.actor_critic import ActorCritic
from lagoon.metrics import (
    ENTROPY,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
)
from lagoon.trajectory import TrainingSample
from workers.critic import Critic, NonFiniteCritic
from workers.critic_trainer import CriticTrainer, Valued
from workers.microbatches import MicroBatch, by_trajectory, micro_batches
from workers.models.writing import save_model_folder, weights_beside
from workers.optimizer import Optimizer
from workers.packing import alone, sharing_prompts
from workers.payload import checksum
from workers.policy import Policy
from workers.step_report import StepReport, Sums, add

Scores = dict[int, TokenScores]
"""What was found of the tokens of each trajectory, by its position in the batch."""


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
        *,
        threads: int = 1,
    ) -> None:
        """The policy of ``model_folder``, or that of ``checkpoint`` after ``version`` steps.

        A penalty's reference is the model folder's in either case.
        """
        method, settings = config.method, config.trainer
        if not isinstance(method, PolicyGradient) or settings is None:
            raise TypeError(f"{method.title} takes no gradient steps")
        torch.set_num_threads(threads)
        torch.manual_seed(config.seed)
        self.version = version
        """Optimizer steps taken since the model folder."""
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
        self._critic_trainer: CriticTrainer | None = None
        if isinstance(method, ActorCritic):
            self._critic_trainer = CriticTrainer(
                method, Critic(model, settings, self._micro_batches)
            )
        if checkpoint is not None:
            self._optimizer.load(load_file(checkpoint / OPTIMIZER))
            if self._critic_trainer is not None:
                self._critic_trainer.critic.load(load_file(checkpoint / CRITIC))

    def _loaded(self, folder: Path) -> Any:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, self._dtype), local_files_only=True
        ).to(self._device)
        # Dropout would train another policy than the one that sampled.
        return model.eval()

    def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        """One optimizer step on all ``samples``.

        Where the method has a critic, the samples' advantages are what they earned; the critic is
        updated as well, and in its warm-up nothing else is.

        Raises ``NonFiniteGradient``, leaving the policy and its optimizer as they were, and a
        critic as it was before that one of its updates which failed.
        """
        sums: Sums = {}
        scores: Scores = {}
        valued = (
            None
            if self._critic_trainer is None
            else self._critic_trainer.valued(samples, self.version)
        )
        is_policy_trained = valued is None or valued.updates.policy > 0
        for batch in self._micro_batches(samples if valued is None else valued.samples):
            more, found = self._accumulate(batch, learns=is_policy_trained)
            add(sums, more)
            scores |= found
            self._optimizer.collect_gradient()
        norm = self._optimizer.gradient_norm() if is_policy_trained else 0.0
        self._refuse_unless_finite(norm)
        if self._critic_trainer is not None and valued is not None:
            add(sums, self._learned(self._critic_trainer, valued, learning_rate))
        if is_policy_trained:
            self._optimizer.step(learning_rate, norm)
            add(sums, {GRAD_NORM: (norm, 1.0), LEARNING_RATE: (learning_rate, 1.0)})
        self.version += 1
        sums[LOSS] = (sums.get(LOSS, (0.0, 0.0))[0], 1.0)
        return StepReport(
            {metric.name: pair for metric, pair in sums.items()},
            tuple(scores[index] for index in range(len(samples))),
        )

    def _refuse_unless_finite(self, norm: float, whose: str = "") -> None:
        if not math.isfinite(norm):
            self._optimizer.drop_gradient()
            raise NonFiniteGradient(
                f"the gradient of step {self.version + 1}{whose} is {norm}: the step was refused, "
                f"the weights are those of step {self.version}"
            )

    def _learned(self, critic: CriticTrainer, batch: Valued, learning_rate: float) -> Sums:
        try:
            return critic.learn(batch, learning_rate)
        except NonFiniteCritic as error:
            self._refuse_unless_finite(error.norm, " of the critic")
            raise

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
        and a critic as parts of the checkpoint that it becomes."""
        weights = weights_beside(folder)
        tensors = {
            name: parameter.detach().cpu().contiguous()
            for name, parameter in self._policy.model.named_parameters()
        }
        save_file(tensors, weights, metadata={"format": "pt"})
        save_model_folder(folder, self._model_folder, self._dtype, weights)
        (folder / OPTIMIZER).parent.mkdir(exist_ok=True)
        save_file(self._optimizer.state(), folder / OPTIMIZER)
        if self._critic_trainer is not None:
            save_file(self._critic_trainer.critic.state(), folder / CRITIC)

    def _micro_batches(self, samples: Sequence[TrainingSample]) -> Iterator[MicroBatch]:
        max_tokens = self._settings.microbatch_tokens
        trajectories = [sample.trajectory for sample in samples]
        rows = (
            sharing_prompts(trajectories, max_tokens, self._policy.width)
            if self._policy.shares_prompts
            else alone(trajectories)
        )
        return micro_batches(samples, rows, max_tokens, self._device)

    def _accumulate(self, batch: MicroBatch, *, learns: bool = True) -> tuple[Sums, Scores]:
        """Add the gradient of one micro-batch, where the policy ``learns`` from it; return its
        metrics, and what its tokens scored."""
        if not bool(batch.action_mask.any()):
            return {}, {own.index: TokenScores(()) for row in batch.rows for own in row.placed}
        with torch.set_grad_enabled(learns):
            loss, logprobs, entropies = self._loss(batch)
        if learns:
            loss.value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        mask = batch.action_mask
        shown: Sums = {
            ENTROPY: (float(entropies[mask].sum()), float(mask.sum())),
            LOSS: (float(loss.value.detach()), 1.0),
        }
        return {**loss.metrics, **shown}, _scores(batch, logprobs, loss)

    def _loss(self, batch: MicroBatch) -> tuple[Loss, torch.Tensor, torch.Tensor]:
        """The method's loss, the log-probabilities that it was made of, and their entropies."""
        logprobs, entropies = self._policy.logprobs_and_entropies(batch)
        reference, proximal = None, None
        if self._reference is not None:
            with torch.no_grad():
                reference = self._reference.logprobs(batch)
        if self._method.needs_proximal:
            # One update per batch: the policy that the update begins with is the present one, so
            # that the anchor is the one before it.
            proximal = interpolated_proximal(
                logprobs, batch.behavior_logprobs, batch.versions, self.version
            )
        loss = self._method.loss(
            TokenBatch(
                logprobs=logprobs,
                behavior_logprobs=batch.behavior_logprobs,
                advantages=batch.advantages,
                weights=batch.weights,
                reference_logprobs=reference,
                proximal_logprobs=proximal,
                trajectories=batch.trajectories,
            )
        )
        return loss, logprobs.detach(), entropies


def _scores(batch: MicroBatch, logprobs: torch.Tensor, loss: Loss) -> Scores:
    """Of each trajectory's sampled tokens: log-probabilities, and what was cut."""
    found = dict(by_trajectory(batch, logprobs))
    cut = loss.importance
    if cut is None:
        return {index: TokenScores(scores) for index, scores in found.items()}
    below, above, masked = (
        dict(by_trajectory(batch, part)) for part in (cut.below, cut.above, cut.is_masked)
    )
    return {
        index: TokenScores(scores, below[index], above[index], masked[index])
        for index, scores in found.items()
    }


def _array(parameter: torch.Tensor) -> NDArray[Any]:
    tensor = parameter.detach().to("cpu", copy=True).contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    array: NDArray[Any] = tensor.numpy()
    return array
