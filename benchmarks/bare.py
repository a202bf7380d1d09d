"""Bare vLLM: the requests of recorded episodes, replayed by a short client without Lagoon or Ray.

It runs in a process of its own, like the generator it is compared with. The engine is set up by
the same arguments, apart from what only Lagoon asks of it: to take weights and, if wanted, to
schedule by vLLM's own scheduler, whose log-probabilities cost more.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lagoon.trajectory import Trajectory
from workers.engine_settings import EngineSettings, engine_arguments, environment
from workers.environments.base import Sleep

END_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn of an episode, as the engine was asked for it."""

    prompt: tuple[int, ...]
    num_tokens: int
    """Tokens that were sampled."""
    wait_seconds: float = 0.0
    """How long the tool then took to answer."""


Episode = tuple[TurnRequest, ...]
"""Requests that follow each other."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay: what was sampled in it, and how long it took."""

    num_tokens: int
    seconds: float


class Bare:
    """A bare engine in its process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def replay(self, episodes: Sequence[Episode], temperature: float) -> Replayed:
        """Ask for all turns again; raises ``RuntimeError`` with what went wrong over there."""
        self._connection.send((list(episodes), temperature))
        replayed: Replayed = self._answer()
        return replayed

    def wait_ready(self) -> None:
        """Wait until the engine has loaded the model."""
        self._answer()

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except EOFError as error:
            raise RuntimeError("the bare engine's process has ended; its log is above") from error


@contextmanager
def bare_engine(
    model_folder: Path, settings: EngineSettings, *, stock_scheduler: bool
) -> Iterator[Bare]:
    """A bare engine that is starting; it ends with the context."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, model_folder, settings, stock_scheduler)
    process = context.Process(target=_serve, args=arguments)
    process.start()
    theirs.close()  # so that the end of the process is the end of what can be read
    try:
        yield Bare(ours)
    finally:
        ours.close()
        process.join(END_SECONDS)
        if process.is_alive():
            process.kill()


def turns(trajectory: Trajectory) -> Episode:
    """The requests that an episode made: all tokens so far, how many were sampled then, and how
    long the answer to them was waited for."""
    found, position, waits = [], 0, _waits(trajectory)
    for is_sampled, group in itertools.groupby(trajectory.action_mask):
        length = len(list(group))
        if is_sampled:
            found.append(TurnRequest(trajectory.token_ids[:position], length, next(waits, 0.0)))
        position += length
    return tuple(found)


def _waits(trajectory: Trajectory) -> Iterator[float]:
    """The tool's time after each turn of the model: all messages of one answer have the same."""
    said = trajectory.turns
    for turn, after in zip(said, [*said[1:], None], strict=False):
        if turn.role == "assistant":
            yield 0.0 if after is None else after.seconds


def _serve(
    connection: Connection, model_folder: Path, settings: EngineSettings, stock_scheduler: bool
) -> None:
    os.environ.update(environment(settings.threads))
    arguments = replace(
        engine_arguments(model_folder, settings),
        weight_transfer_config=None,
        worker_extension_cls="",
    )
    if stock_scheduler:
        arguments = replace(arguments, scheduler_cls=None)
    asyncio.run(_answer_replays(connection, arguments, settings.max_concurrent))


async def _answer_replays(connection: Connection, arguments: Any, max_concurrent: int) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415  reads its environment on import

    engine = AsyncLLM.from_engine_args(arguments)
    try:
        connection.send(None)
        while True:
            episodes, temperature = await asyncio.to_thread(connection.recv)
            await engine.reset_prefix_cache()
            client = _Client(engine, temperature)
            connection.send(await replay(client.ask, episodes, max_concurrent))
    except EOFError:  # nobody will ask for more
        return
    finally:
        engine.shutdown()
        # Its finalizer fails when it is left to the end of the interpreter.
        del engine


async def replay(
    ask: Callable[[TurnRequest], Awaitable[int]],
    episodes: Sequence[Episode],
    max_concurrent: int,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Sleep = asyncio.sleep,
) -> Replayed:
    """Side by side like the generator's episodes: so many at once, started in their order, with
    the same waits for tools.

    ``ask`` returns the number of tokens sampled for a request.
    """
    places = asyncio.Semaphore(max_concurrent)

    async def one(episode: Episode) -> int:
        num_tokens = 0
        async with places:
            for request in episode:
                num_tokens += await ask(request)
                if request.wait_seconds:
                    await sleep(request.wait_seconds)
        return num_tokens

    started = clock()
    counts = await asyncio.gather(*(one(episode) for episode in episodes))
    return Replayed(sum(counts), clock() - started)


class _Client:
    """Asks an engine for turns, with the options that make it cheapest."""

    def __init__(self, engine: Any, temperature: float) -> None:
        from vllm import SamplingParams  # noqa: PLC0415  vLLM reads its environment on import
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415  likewise
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415  likewise

        self._engine, self._tokens_input = engine, tokens_input
        self._numbers = itertools.count()
        self._params: dict[int, Any] = {}
        self._make_params: Callable[..., Any] = SamplingParams
        self._options = {
            "temperature": temperature,
            "ignore_eos": True,
            "logprobs": 0,
            "flat_logprobs": True,
            "detokenize": False,
            "output_kind": RequestOutputKind.FINAL_ONLY,
            "skip_clone": True,
        }

    async def ask(self, request: TurnRequest) -> int:
        """Sample exactly as many tokens as were recorded; returns their number."""
        prompt, params = self._tokens_input(list(request.prompt)), self._sampling(request)
        answer = None
        async for output in self._engine.generate(prompt, params, str(next(self._numbers))):
            answer = output
        assert answer is not None  # a finished request has an answer
        return len(answer.outputs[0].token_ids)

    def _sampling(self, request: TurnRequest) -> Any:
        """Without a token that stops it, ``max_tokens`` is the exact length."""
        length = request.num_tokens
        if length not in self._params:
            self._params[length] = self._make_params(max_tokens=length, **self._options)
        return self._params[length]
