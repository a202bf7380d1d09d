"""AdamW over float32 masters, whatever the model computes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from lagoon.config import TrainerConfig

MASTER = "master"


class Optimizer:
    """AdamW with decoupled weight decay on the matrices, and a gradient summed in float32.

    A model in bfloat16 has float32 masters here: steps are smaller than its number format can
    hold. A float32 model is its own master.
    """

    def __init__(self, parameters: Mapping[str, Tensor], settings: TrainerConfig) -> None:
        self._names = list(parameters)
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

    def state(self) -> dict[str, Tensor]:
        """All that a later optimizer needs to go on bit for bit, by part and parameter.

        Moments, their step counts, and the masters of parameters that are not float32.
        """
        found: dict[str, Tensor] = {}
        for name, parameter, master in self._named():
            if parameter is not master:
                found[f"{MASTER}/{name}"] = master.detach()
            for part, value in self._adam.state.get(master, {}).items():
                found[f"{part}/{name}"] = value
        return {name: tensor.cpu().contiguous() for name, tensor in found.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what ``state`` returned. Raises ``ValueError`` for another model's."""
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in self._names}
        for key, tensor in state.items():
            part, _, name = key.partition("/")
            if name not in parts:
                raise ValueError(f"the optimizer's state has {key!r}, which is not of this model")
            parts[name][part] = tensor
        for name, parameter, master in self._named():
            values = parts[name]
            if parameter is not master:
                with torch.no_grad():
                    master.copy_(values.pop(MASTER))
                    parameter.copy_(master)
            if any(v.ndim and v.shape != master.shape for v in values.values()):
                raise ValueError(f"the optimizer's state of {name!r} has another shape")
            if values:
                self._adam.state[master] = {
                    part: value.to(master.device, copy=True) for part, value in values.items()
                }

    def _named(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        return zip(self._names, self._parameters, self._masters, strict=True)

    def drop_gradient(self) -> None:
        """Forget the summed gradient."""
        for tensor in (*self._parameters, *self._masters):
            tensor.grad = None
