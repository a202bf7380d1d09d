"""A vLLM engine as the rollout sees it: samples tokens, takes new weights while it samples.

::

    sample ─▶ AsyncLLM ─▶ engine process ─▶ tokens, log-probabilities, version spans
    publish / perturb / update ─▶ pause, keeping or cutting requests, and clearing the cache
                                  ─▶ load ─▶ label ─▶ resume ─▶ (cut ones: sample the rest)

Behavior log-probabilities are those of the distribution that was sampled from: vLLM's "processed"
mode, which divides by the temperature first. A greedy token (temperature 0) reports its
log-probability at temperature 1. There is no per-request seed: it kills the engine on CPU.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagoon.evolution import NoiseKey
from lagoon.homes import make_short_folder
from workers import engine_process
from workers.engine_settings import EngineSettings, engine_arguments, environment
from workers.handles import UpdateReport
from workers.imports import uncollected
from workers.models.writing import save_model_folder, weights_beside
from workers.payload import Weights, write_payload
from workers.rollout import Sampled
from workers.settings import own_home

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

LOGPROBS = "lagoon_logprobs"
"""Key under which ``workers.engine_scheduler`` sends a request's log-probabilities."""
AFTER = "lagoon_after"
"""Key under which a request names the one that was cut and that it goes on from: their
log-probabilities are sent together."""
CUT = "abort"
"""vLLM's word for the end of a request that was cut."""


class EngineFailed(RuntimeError):
    """The engine process is gone or holds unknown weights: nothing sampled after is trustworthy."""

    is_transient = True


class VLLMEngine:
    """A vLLM engine in a process of its own. Made by ``start`` inside a running event loop."""

    def __init__(
        self,
        engine: AsyncLLM,
        model_folder: Path,
        settings: EngineSettings,
        shapes: dict[str, list[int]],
    ) -> None:
        from vllm import SamplingParams  # noqa: PLC0415  vLLM reads its environment on import
        from vllm.distributed.weight_transfer.base import (  # noqa: PLC0415  likewise
            WeightTransferUpdateRequest,
        )
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415  likewise
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415  likewise

        self._engine = engine
        self._model_folder = model_folder
        self._shapes = shapes
        self._sampling_params, self._tokens_input = SamplingParams, tokens_input
        self._update_request = WeightTransferUpdateRequest
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._numbers = itertools.count()
        self._params_of: dict[tuple[int, float, tuple[int, ...]], Any] = {}
        self._changing_weights = asyncio.Lock()
        self._pause_mode = "abort" if settings.cuts_turns else "keep"
        self._num_loads = 0
        self._is_held = False
        """Somebody has paused the run: it stays paused when weights have been loaded."""
        self._failure: EngineFailed | None = None

    @staticmethod
    def prepare(settings: EngineSettings) -> None:
        """Set the environment that vLLM reads, and import vLLM here and for the engine's process.

        ``start`` does it too, where it was not done before.
        """
        os.environ.update(environment(settings.threads))
        if settings.on_cpu:
            engine_process.preload(make_short_folder(own_home()))
        with uncollected():
            import vllm.v1.engine.async_llm  # noqa: F401, PLC0415  after the environment

    @classmethod
    async def start(
        cls,
        model_folder: Path,
        settings: EngineSettings,
        version: int = 0,
        origin: Path | None = None,
    ) -> VLLMEngine:
        """Start the engine process with the weights of ``model_folder``, as ``version``.

        ``origin`` is the run's starting model, where the folder is a later checkpoint of it.

        Raises ``ValueError`` when the folder holds no safetensors file: a publish is checked
        against its names and shapes.
        """
        if not any(model_folder.glob("*.safetensors")):
            raise ValueError(f"{model_folder} has no safetensors weights: save the model as such")
        cls.prepare(settings)
        from vllm.distributed.weight_transfer.base import (  # noqa: PLC0415  after the environment
            WeightTransferInitRequest,
        )
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415  after the environment

        if settings.on_cpu:
            engine_process.fork_engines()
        engine = AsyncLLM.from_engine_args(engine_arguments(model_folder, settings))
        await engine.init_weight_transfer_engine(
            WeightTransferInitRequest(
                {
                    "model_folder": str(model_folder),
                    "keep_master": settings.keep_master,
                    "origin": str(origin or model_folder),
                }
            )
        )
        await engine.update_weight_version(str(version))
        (shapes,) = await engine.collective_rpc("lagoon_shapes")
        return cls(engine, model_folder, settings, shapes)

    async def sample(
        self,
        token_ids: list[int],
        *,
        max_tokens: int,
        temperature: float,
        stop_token_ids: list[int],
    ) -> Sampled:
        """Continue ``token_ids`` until a stop token, which is kept, or ``max_tokens``.

        Where loading weights cuts requests, one that was cut goes on after its tokens so far.
        Raises ``EngineFailed`` when the engine process has died.
        """
        parts: list[RequestOutput] = []
        so_far: list[int] = []
        after = ""
        while True:
            self.check()
            room, loads = max_tokens - len(so_far), self._num_loads
            params = self._params(room, temperature, tuple(stop_token_ids), after)
            after = str(next(self._numbers))
            # Given as the engine's own kind of input, a prompt does not pass through a thread pool.
            answer = await self._answer(self._tokens_input([*token_ids, *so_far]), params, after)
            parts.append(answer)
            if answer.outputs[0].finish_reason != CUT:
                return _sampled(parts)
            if loads == self._num_loads:
                raise EngineFailed("the engine cut a request while no weights were loaded")
            so_far += answer.outputs[0].token_ids

    async def _answer(self, prompt: Any, params: Any, name: str) -> RequestOutput:
        answer = None
        try:
            # One answer comes; leaving the loop before it ends would send an abort after it.
            async for output in self._engine.generate(prompt, params, name):
                answer = output
        except Exception:  # whatever it was: a dead engine process is the better explanation
            self.check()
            raise
        if answer is None:
            raise EngineFailed("the engine ended a request without an answer")
        return answer

    def _params(
        self, max_tokens: int, temperature: float, stop_token_ids: tuple[int, ...], after: str
    ) -> Any:
        """Sampling parameters; few differ in a run, and making them costs more than sampling.
        ``after`` names the request that was cut and that this one goes on from.
        """
        if after:
            return self._new_params(max_tokens, temperature, stop_token_ids, {AFTER: after})
        key = (max_tokens, temperature, stop_token_ids)
        if key not in self._params_of:
            self._params_of[key] = self._new_params(*key, None)
        return self._params_of[key]

    def _new_params(
        self,
        max_tokens: int,
        temperature: float,
        stop_token_ids: tuple[int, ...],
        extra: dict[str, str] | None,
    ) -> Any:
        return self._sampling_params(
            temperature=temperature,
            max_tokens=max_tokens,
            stop_token_ids=list(stop_token_ids),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=self._final_only,
            skip_clone=True,
            extra_args=extra,
        )

    def check(self) -> None:
        """Raise ``EngineFailed`` when the engine can no longer be used."""
        if self._failure is None and self._engine.errored:
            self._failure = EngineFailed(
                "the vLLM engine process died; its episodes in flight are lost, earlier results "
                "and checkpoints are not; the reason is in the generator's log"
            )
        if self._failure is not None:
            raise self._failure

    async def hold(self, *, is_paused: bool) -> None:
        """Sample nothing, and keep all that is in flight as it is; or go on with it.

        A pause that fails half-way leaves the engine unusable. Saying it twice changes nothing.
        """
        self.check()
        async with self._changing_weights:
            if is_paused == self._is_held:
                return
            try:
                if is_paused:
                    core = self._engine.engine_core
                    await core.pause_scheduler_async(mode="keep", clear_cache=False)
                else:
                    await self._engine.resume_generation()
            except Exception as error:
                self._failure = EngineFailed(f"pausing the engine, or its end, failed: {error}")
                raise self._failure from error
            self._is_held = is_paused

    async def publish(self, version: int, weights: Weights) -> str:
        """Load the trainer's weights as ``version``; requests in flight continue with them.

        Returns the checksum of what the engine process received (``workers.payload.checksum``).
        Raises ``ValueError``, with the engine untouched, for weights of another model.
        """
        self._refuse_strangers(weights)
        path = await asyncio.to_thread(write_payload, weights)
        try:
            await self._load({"kind": "weights", "path": str(path)}, version)
        finally:
            path.unlink(missing_ok=True)
        return str(await self._ask("lagoon_checksum"))

    async def perturb(self, seed: int, sigma: float, noise: NoiseKey) -> None:
        """Load ``master + sigma * noise(seed)``; the version stays that of the master."""
        await self._load({"kind": "perturb", "seed": seed, "sigma": sigma, "noise": noise}, None)

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: NoiseKey
    ) -> UpdateReport:
        """Add ``sum coefficient * noise(seed)`` to the master and load it as ``version``."""
        members = {"seeds": list(seeds), "coefficients": list(coefficients)}
        await self._load({"kind": "update", "noise": noise, **members}, version)
        return UpdateReport(*await self._ask("lagoon_update_report"))

    async def save(self, folder: Path) -> None:
        """Write the master as a Hugging Face folder."""
        weights = weights_beside(folder)
        await self._ask("lagoon_save_master", str(weights))
        await asyncio.to_thread(save_model_folder, folder, self._model_folder, "float32", weights)

    def shutdown(self) -> None:
        """End the engine process; nothing can be asked of it afterwards."""
        self._failure = self._failure or EngineFailed("the engine was shut down")
        self._engine.shutdown()
        # Its finalizer fails when it is left to the end of the interpreter.
        del self._engine

    def _refuse_strangers(self, weights: Weights) -> None:
        """A missing tensor would leave a layer with its old weights, without a word from vLLM."""
        shapes = {name: list(array.shape) for name, array in weights.items()}
        wrong = sorted(
            name
            for name in shapes.keys() | self._shapes.keys()
            if shapes.get(name) != self._shapes.get(name)
        )
        if wrong:
            raise ValueError(
                f"the published weights do not fit the engine's model: {len(wrong)} tensors "
                f"differ in name or shape, first {wrong[0]}; the engine keeps its weights"
            )

    async def _load(self, change: dict[str, Any], version: int | None) -> None:
        """Change the weights between two engine steps, and label what is sampled after.

        The cache is cleared: its keys and values belong to the weights before. A change that
        fails half-way leaves the engine paused and unusable.
        """
        self.check()
        async with self._changing_weights:
            engine = self._engine
            self._num_loads += 1
            try:
                # AsyncLLM.pause_generation is this call and a sleep of 20 ms that a change of
                # weights does not need.
                await engine.engine_core.pause_scheduler_async(
                    mode=self._pause_mode, clear_cache=True
                )
                await engine.start_weight_update()
                await engine.update_weights(self._update_request(update_info=change))
                await engine.finish_weight_update(None if version is None else str(version))
                if not self._is_held:
                    await engine.resume_generation()
                is_paused = await engine.is_paused()
            except Exception as error:
                self._failure = EngineFailed(f"loading weights into the engine failed: {error}")
                raise self._failure from error
        if is_paused != self._is_held:
            self._failure = EngineFailed("the engine did not resume after loading weights")
            raise self._failure

    async def _ask(self, method: str, *args: Any) -> Any:
        self.check()
        return (await self._engine.collective_rpc(method, args=args))[0]


def _sampled(parts: Sequence[RequestOutput]) -> Sampled:
    """What the engine answered, as the rollout keeps it; in several parts, if it was cut.

    Log-probabilities are NaN where some are missing: whose they would be, nobody can say.
    """
    token_ids: list[int] = []
    versions: list[int | None] = []
    logprobs: list[float] = []
    kept = parts[-1].kv_transfer_params
    for part in parts:
        output = part.outputs[0]
        labels: list[int | None] = [None] * len(output.token_ids)
        for span in output.weight_versions or []:
            labels[span.start : span.end] = [int(span.version)] * (span.end - span.start)
        token_ids += output.token_ids
        versions += labels
        if not kept and output.logprobs:
            logprobs += output.logprobs.logprobs
    if kept:
        logprobs = kept[LOGPROBS]
    if len(logprobs) != len(token_ids):
        logger.warning("%s tokens came with %s log-probabilities", len(token_ids), len(logprobs))
        logprobs = [nan] * len(token_ids)
    return Sampled(
        token_ids=token_ids,
        logprobs=logprobs,
        versions=versions,
        finish="length" if parts[-1].outputs[0].finish_reason == "length" else "stop",
        num_cached_tokens=parts[0].num_cached_tokens or 0,
    )
