"""How a vLLM engine is set up for a run. Loads vLLM only when its arguments are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lagoon.config import RunConfig
from lagoon.homes import make_short_folder
from lagoon.models import CACHE_BLOCK_TOKENS
from workers.settings import own_home

if TYPE_CHECKING:
    from vllm import AsyncEngineArgs

GIB = 2**30
PREFILL_TOKENS = 8192
"""Prompt tokens that one engine step may take in."""
HEADROOM = 2
"""Requests that an engine's batch holds for each that is in it at the attempt's start."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine needs to know of its run."""

    dtype: str
    max_length_tokens: int
    max_concurrent: int
    """Requests in the engine at once; they may become more while the run goes on."""
    kv_cache_gib: float
    threads: int
    on_cpu: bool
    """It has no GPU, and vLLM is the build for CPUs."""
    seed: int
    keep_master: bool
    """Keep a float32 master of the weights in the engine process, for evolution strategies."""
    cuts_turns: bool = False
    """Loading weights cuts the requests in flight, which leave the engine and come again with what
    they have; else they stay in it."""

    @property
    def max_batch(self) -> int:
        """Requests that one batch of the engine holds: vLLM wants no more than ``step_tokens``."""
        return min(HEADROOM * self.max_concurrent, self.step_tokens)

    @property
    def step_tokens(self) -> int:
        """Tokens that one engine step may compute, prompts included."""
        return max(PREFILL_TOKENS, self.max_length_tokens)


def engine_settings(config: RunConfig, *, threads: int, index: int) -> EngineSettings:
    """The settings of generator ``index`` of a run."""
    rollout = config.rollout
    return EngineSettings(
        dtype=config.model.dtype,
        max_length_tokens=config.model.max_length_tokens,
        max_concurrent=places_per_generator(config),
        kv_cache_gib=rollout.kv_cache_gib,
        threads=threads,
        on_cpu=config.resources.gpus_per_generator == 0,
        # Engines of one run must not draw the same numbers.
        seed=(config.seed + index * 1_000_003) % 2**31,
        keep_master=config.method.family == "evolution",
        cuts_turns=rollout.weight_update_mode == "abort",
    )


def places_per_generator(config: RunConfig) -> int:
    """Episodes that each generator plays at once."""
    return -(-config.rollout.max_concurrent // config.rollout.num_generators)


def environment(threads: int) -> dict[str, str]:
    """What vLLM and torch read from the environment when they are imported.

    The folder that vLLM's sockets go to is the home's, and is made here: an engine may be the
    first on its node.
    """
    return {
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        "OMP_NUM_THREADS": str(threads),
        # The process title is written over argv and what lies behind it: the environment, by which
        # the processes of an attempt are found.
        "SPT_NOENV": "1",
        # The sampler would compile one small function: 15 s and a C++ compiler, for nothing.
        "TORCHDYNAMO_DISABLE": "1",
        # The worker lives in the engine's process: one start less, no queue between them. The name
        # is vLLM's; AsyncLLM has its engine process either way.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # Several engines and a trainer share the cores; pinning would stack them on the same ones.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_RPC_BASE_PATH": str(make_short_folder(own_home())),
    }


def engine_arguments(model_folder: Path, settings: EngineSettings) -> AsyncEngineArgs:
    """vLLM's arguments for an engine that takes weights while it samples."""
    from vllm import AsyncEngineArgs  # noqa: PLC0415  vLLM reads its environment on import
    from vllm.config import WeightTransferConfig  # noqa: PLC0415  likewise

    return AsyncEngineArgs(
        model=str(model_folder),
        dtype=settings.dtype,
        max_model_len=settings.max_length_tokens,
        max_num_seqs=settings.max_batch,
        max_num_batched_tokens=settings.step_tokens,
        kv_cache_memory_bytes=int(settings.kv_cache_gib * GIB),
        enable_prefix_caching=True,
        enforce_eager=True,
        logprobs_mode="processed_logprobs",
        seed=settings.seed,
        # Token ids in, token ids out: the engine needs neither a tokenizer nor its defaults.
        skip_tokenizer_init=True,
        generation_config="vllm",
        disable_log_stats=True,
        # The default of 128 on CPU is as long as a whole small conversation, and only full blocks
        # are found again: every turn would compute the ones before it anew.
        block_size=CACHE_BLOCK_TOKENS if settings.on_cpu else None,
        # On a GPU vLLM schedules ahead of its own steps, which is worth more than cheap logprobs.
        scheduler_cls="workers.engine_scheduler.LogprobScheduler" if settings.on_cpu else None,
        weight_transfer_config=WeightTransferConfig(backend="lagoon"),
        worker_extension_cls="workers.weight_transfer.LagoonWorker",
    )
