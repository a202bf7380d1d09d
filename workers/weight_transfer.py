"""How weights get into a running vLLM engine. Imported inside the engine process.

::

    trainer ─▶ safetensors file in shared memory ─▶ "weights" ─┐
    model folder ─▶ float32 master ─▶ "perturb" | "update" ────┴▶ layerwise reload

Weights arrive under their checkpoint names and go through the model's own loader, because vLLM
on CPU repacks linear layers and frees the originals. For evolution strategies the master stays in
this process: a member costs a seed on the wire, not a model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from lagoon.evolution import NoiseKey
from workers.orphans import end_with_parent
from workers.payload import checksum_of
from workers.perturbation import add_update_, perturbed, sum_of_squares

BACKEND = "lagoon"

# At each reload it warns of every layer that has no tensor of its own in the checkpoint (rotary
# tables, a tied head). A publish that lacks a tensor is refused by name before.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is untyped here
    """Where the engine's weights come from, and whether to keep a float32 master of them."""

    model_folder: str
    keep_master: bool = False
    origin: str = ""
    """The run's starting model, from which the drift is measured; empty: the model folder."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]  # likewise
    """One change of the engine's weights; only the fields of its kind are read."""

    kind: Literal["weights", "perturb", "update"]
    path: str = ""
    seed: int = 0
    sigma: float = 0.0
    seeds: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    noise: NoiseKey = "per_tensor"


class SharedMemoryWeightTransfer(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]  # vLLM is untyped here
    """Loads weights from shared memory or from the master, and remembers what it loaded."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Read the names and shapes of the checkpoint, and the master when it is wanted."""
        end_with_parent()
        self.is_tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
        files = _weight_files(init_info.model_folder)
        self.origin_files = _weight_files(init_info.origin or init_info.model_folder)
        self.master: dict[str, Tensor] | None = None
        self.checksum = ""
        self.update_norm = 0.0
        initial = dict(self._checkpoint(files))
        self.shapes = {name: list(tensor.shape) for name, tensor in initial.items()}
        if init_info.keep_master:
            self.master = {name: tensor.float().clone() for name, tensor in initial.items()}
            self.checksum = _checksum(self.master)

    def start_weight_update(self) -> None:
        """Let the model's layers be loaded again."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Repack what was loaded, and the head that is tied to it.

        On CPU a tied head holds a packed copy of the embedding. No tensor of the checkpoint is
        called like it, so the reload leaves it as it was: it would answer with the old weights.
        """
        finalize_layerwise_reload(self.model, self.model_config)
        if self.is_tied:
            for module in self.model.modules():
                if isinstance(module, ParallelLMHead):
                    module.quant_method.process_weights_after_loading(module)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Apply one update, without the accelerator barrier of the base class on a CPU."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load the weights that ``update_info`` describes."""
        with torch.inference_mode(False), torch.no_grad():
            if update_info.kind == "weights":
                self._load_received(Path(update_info.path))
            elif update_info.kind == "perturb":
                seed, sigma = update_info.seed, update_info.sigma
                self._load(perturbed(self.required_master(), seed, sigma, update_info.noise))
            else:
                self._update_master(update_info)
                self._load(self.required_master().items())

    def shutdown(self) -> None:
        """Nothing to release: the file belongs to who wrote it."""

    def required_master(self) -> dict[str, Tensor]:
        """The float32 master. Raises ``RuntimeError`` when the engine was started without one."""
        if self.master is None:
            raise RuntimeError("this engine keeps no master copy: it was not started for ES")
        return self.master

    def drift_norm(self) -> float:
        """Distance of the master from the run's start, read again to save a copy in memory."""
        master = self.required_master()
        squares = sum(
            sum_of_squares(master[name] - tensor.float())
            for name, tensor in self._checkpoint(self.origin_files)
        )
        return float(squares**0.5)

    def _load_received(self, path: Path) -> None:
        received = dict(self._checkpoint([path]))
        self._load(received.items())
        self.checksum = _checksum(received)
        if self.master is not None:
            self.master = {name: tensor.float().clone() for name, tensor in received.items()}

    def _update_master(self, info: UpdateInfo) -> None:
        master = self.required_master()
        self.update_norm = add_update_(master, info.seeds, info.coefficients, info.noise)
        self.checksum = _checksum(master)

    def _load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self.model.load_weights(iter(weights))

    def _checkpoint(self, files: Iterable[Path]) -> Iterable[tuple[str, Tensor]]:
        """Floating-point tensors of safetensors files; a tied head is the embedding's alias."""
        for file in files:
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118  the file is no mapping
                    if self.is_tied and name == "lm_head.weight":
                        continue
                    tensor = opened.get_tensor(name)
                    if tensor.is_floating_point():
                        yield name, tensor


def _weight_files(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.safetensors"))


def _checksum(weights: Mapping[str, Tensor]) -> str:
    return checksum_of(
        (name, weights[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
        for name in sorted(weights)
    )


class LagoonWorker:
    """Mixed into vLLM's worker: what can be asked of the engine process by ``collective_rpc``."""

    weight_transfer_engine: SharedMemoryWeightTransfer

    def lagoon_checksum(self) -> str:
        """SHA-256 of the payload received last, or of the master after an ES update."""
        return self.weight_transfer_engine.checksum

    def lagoon_shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor of the checkpoint: what a publish must bring."""
        return self.weight_transfer_engine.shapes

    def lagoon_update_report(self) -> tuple[str, float, float, int]:
        """Checksum, norm of the last update, distance from the start, number of parameters."""
        transfer = self.weight_transfer_engine
        count = sum(tensor.numel() for tensor in transfer.required_master().values())
        return transfer.checksum, transfer.update_norm, transfer.drift_norm(), count

    def lagoon_save_master(self, path: str) -> None:
        """Write the master as one safetensors file."""
        save_file(self.weight_transfer_engine.required_master(), path, metadata={"format": "pt"})


WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryWeightTransfer)
