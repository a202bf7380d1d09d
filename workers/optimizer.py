"""AdamW over float32 masters, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from lagoon.config import TrainerConfig


class Optimizer:
    """AdamW with decoupled weight decay on the matrices, and a gradient summed in float32.

    A model in bfloat16 has float32 masters here: steps are smaller than its number format can
    hold. A float32 model is its own master.
    """

    def __init__(self, parameters: Mapping[str, Tensor], settings: TrainerConfig) -> None:
        self._parameters = list(parameters.values())
        self._masters = [
            parameter
            if parameter.dtype == torch.float32
            else parameter.detach().float().requires_grad_()
            for parameter in self._parameters
        ]
        self._max_norm = settings.max_grad_norm
        matrices = [master for master in self._masters if master.ndim > 1]
        others = [master for master in self._masters if master.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            groups, lr=0.0, betas=(settings.beta1, settings.beta2), fused=True
        )

    def collect_gradient(self) -> None:
        """Move a micro-batch's gradient to the masters, where it is summed."""
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            if parameter is master or parameter.grad is None:
                continue
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    def gradient_norm(self) -> float:
        """Euclidean norm of the summed gradient."""
        gradients = [master.grad for master in self._masters if master.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    def step(self, learning_rate: float, norm: float) -> None:
        """Scale the gradient of length ``norm`` down to the limit, and step."""
        torch.nn.utils.clip_grads_with_norm_(
            self._masters, self._max_norm, torch.tensor(norm, device=self._masters[0].device)
        )
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self.drop_gradient()
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                if parameter is not master:
                    parameter.copy_(master)

    def drop_gradient(self) -> None:
        """Forget the summed gradient."""
        for tensor in (*self._parameters, *self._masters):
            tensor.grad = None
