"""The driver: one process per run attempt that wires a loop to its actors and reports its end.

::

    config ─▶ model folder ─▶ generators + trainer (Ray) ─▶ loop ─▶ final weights ─▶ end marker
                                                              │
                                                 events ─▶ sink ─▶ API or JSONL file

From the moment that it has its config, its last event is the end marker: finished, stopped or
failed, with the cause in one sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import ray

from lagoon.clashes import Capacity, capacity_clashes
from lagoon.config import RunConfig
from lagoon.events import HeartbeatLogged, RunEnded
from workers import cluster
from workers.environments import num_tasks
from workers.generators import GeneratorHandle, Generators, RunFailed
from workers.heldout import heldout_indices
from workers.loops.context import LoopContext, Outcome, Progress, unless_stopped
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop, TrainerHandle
from workers.models.folders import ModelError, model_folder
from workers.reporting import Reporter, SinkHandler
from workers.settings import SpoolSettings, own_home
from workers.sink import JsonlSink, PlatformSink, Sink

HEARTBEAT_SECONDS = 5.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
logger = logging.getLogger("lagoon.driver")


class StopSwitch:
    """Asks a run to stop, from any thread; a request made before the run listens is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = False
        self._listener: Callable[[], object] | None = None

    def request(self) -> None:
        """Ask the run to stop."""
        with self._lock:
            self._requested = True
            if self._listener is not None:
                self._listener()

    def connect(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` at the next request, and now if there was one."""
        with self._lock:
            self._listener = listener
            if self._requested:
                listener()

    def disconnect(self) -> None:
        """Stop listening."""
        with self._lock:
            self._listener = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a driver runs, apart from its config."""

    sink: Sink
    checkpoints: Path
    home: Path
    stop: asyncio.Event


async def train(config: RunConfig, surroundings: Surroundings) -> Outcome:
    """Run a config to its end. Raises ``RunFailed`` with the cause."""
    progress = Progress()
    heartbeat = asyncio.ensure_future(_heartbeat(surroundings.sink, progress))
    try:
        started = await unless_stopped(surroundings.stop, _start(config, surroundings))
        if started is None:
            return "stopped"
        return await _loop(config, surroundings, progress, *started).run()
    finally:
        heartbeat.cancel()


async def _start(
    config: RunConfig, surroundings: Surroundings
) -> tuple[list[int], list[cluster.RemoteGenerator], cluster.RemoteTrainer | None]:
    """The run's held-out tasks, and its actors: generators with their models loaded, and a trainer
    that loads its own."""
    reporter = Reporter(surroundings.sink, time.time)
    _check_capacity(config)
    reporter.status("starting", "Choosing held-out tasks.")
    environment = config.environment
    heldout = await heldout_indices(
        environment, config.evaluation.num_tasks, num_tasks(environment, "heldout")
    )
    reporter.status("starting", f"Preparing the model {config.model.path!r}.")
    try:
        folder = await asyncio.to_thread(
            model_folder, config.model.path, surroundings.home, logger.info
        )
    except ModelError as error:
        raise RunFailed(f"The model cannot be used: {error}", traceback.format_exc()) from error
    reporter.status("starting", "Starting generators and trainer.")
    generators = cluster.start_generators(config, folder)
    trainer = cluster.start_trainer(config, folder)
    await cluster.all_started(generators, trainer)
    return heldout, generators, trainer


def _loop(
    config: RunConfig,
    surroundings: Surroundings,
    progress: Progress,
    heldout: Sequence[int],
    generators: Sequence[GeneratorHandle],
    trainer: TrainerHandle | None,
) -> EvolutionLoop | PolicyGradientLoop:
    context = LoopContext(
        config=config,
        generators=Generators(generators, lambda: progress.version),
        reporter=Reporter(surroundings.sink, time.time),
        sink=surroundings.sink,
        progress=progress,
        stop=surroundings.stop,
        clock=time.time,
        stopwatch=time.monotonic,
        num_train_tasks=num_tasks(config.environment, "train"),
        heldout=heldout,
        checkpoints=surroundings.checkpoints,
    )
    if trainer is None:
        return EvolutionLoop(context)
    return PolicyGradientLoop(context, trainer)


def _check_capacity(config: RunConfig) -> None:
    available = ray.cluster_resources()
    capacity = Capacity(cpus=available.get("CPU", 0), gpus=available.get("GPU", 0))
    for clash in capacity_clashes(config, capacity):
        raise RunFailed(f"The cluster is too small: {clash.message}.")


async def _heartbeat(sink: Sink, progress: Progress) -> None:
    pid, host = os.getpid(), socket.gethostname()
    while True:
        sink.log(HeartbeatLogged(at=time.time(), step=progress.version, pid=pid, host=host))
        await asyncio.sleep(HEARTBEAT_SECONDS)


def run_to_end(
    config: RunConfig, sink: Sink, switch: StopSwitch, checkpoints: Path, home: Path
) -> RunEnded:
    """Run a config, whatever happens, and return the end marker, which was also logged.

    SIGTERM and SIGINT ask for a stop: the run saves its weights and ends as stopped, with the
    signal as its reason. Who asked through the platform is known there, and not here.
    """
    handler = SinkHandler(sink)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        ended = asyncio.run(_until_end(config, sink, switch, checkpoints, home))
    finally:
        logging.getLogger().removeHandler(handler)
    sink.log(ended)
    return ended


async def _until_end(
    config: RunConfig, sink: Sink, switch: StopSwitch, checkpoints: Path, home: Path
) -> RunEnded:
    stop = asyncio.Event()
    heard: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        heard.append(number)
        stop.set()

    loop = asyncio.get_running_loop()
    switch.connect(lambda: loop.call_soon_threadsafe(stop.set))
    try:
        cluster.connect()
        # After Ray, which puts a handler of its own in the place of any that is there before.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        outcome = await train(config, Surroundings(sink, checkpoints, home, stop))
        reason = f"The driver received {heard[0].name}." if outcome == "stopped" and heard else ""
        return RunEnded(at=time.time(), outcome=outcome, reason=reason)
    except RunFailed as error:
        return _failure(str(error), error.details or traceback.format_exc())
    except Exception as error:  # the end marker must be written whatever went wrong
        return _failure(f"The driver failed: {error}".splitlines()[0], traceback.format_exc())
    finally:
        switch.disconnect()
        with contextlib.suppress(Exception):  # a cluster that is gone cannot be left
            ray.shutdown()


def _failure(reason: str, details: str) -> RunEnded:
    logger.error("%s\n%s", reason, details)
    return RunEnded(at=time.time(), outcome="failed", reason=reason, traceback=details)


Run = Callable[[RunConfig, Sink, StopSwitch, Path, Path], RunEnded]


def train_standalone(
    config: RunConfig, output: Path, home: Path | None = None, run: Run = run_to_end
) -> int:
    """Run a config without any platform: events and weights go below ``output``.

    What happens is said on standard error, and last of all the outcome with its reason. Returns 0
    when the run finished or was stopped, 1 when it failed. Raises ``FileExistsError`` when
    ``output`` holds the events of another run, with nothing changed.
    """
    home = home or own_home()
    sink = JsonlSink(output / "events.jsonl")
    try:
        (output / "config.json").write_text(config.model_dump_json(indent=2), encoding="utf-8")
        with _log_on_stderr(), _home_for_children(home):
            ended = run(config, sink, StopSwitch(), output / "checkpoints", home)
    finally:
        sink.close()
    sys.stderr.write(": ".join(filter(None, (ended.outcome, ended.reason))) + "\n")
    return 1 if ended.outcome == "failed" else 0


@contextlib.contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Show the log of Lagoon's own modules from INFO on, and warnings of all others."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    ours = [logging.getLogger(name) for name in ("lagoon", "workers")]
    levels = [each.level for each in ours]
    logging.getLogger().addHandler(handler)
    for each in ours:
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        for each, level in zip(ours, levels, strict=True):
            each.setLevel(level)


@contextlib.contextmanager
def _home_for_children(home: Path) -> Iterator[None]:
    """All processes that are started meanwhile carry LAGOON_HOME, whoever chose the home."""
    before = os.environ.get("LAGOON_HOME")
    os.environ["LAGOON_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LAGOON_HOME"]
        else:
            os.environ["LAGOON_HOME"] = before


def run_attempt(attempt_id: str, api_url: str, credential: Path) -> int:
    """Run one attempt of a platform's run: its config comes from the API, its events go there."""
    token = credential.read_text(encoding="utf-8").strip()
    home = own_home()
    folder = home / "attempts" / attempt_id
    switch = StopSwitch()
    with open_connection(api_url, token) as client:
        config = _fetch_config(client, attempt_id)
        quota = SpoolSettings().spool_quota_bytes
        sink = PlatformSink(client, attempt_id, folder / "spool", switch.request, quota_bytes=quota)
        try:
            ended = run_to_end(config, sink, switch, folder / "checkpoints", home)
        finally:
            arrived = sink.close()
    return 1 if ended.outcome == "failed" or not arrived else 0


def open_connection(api_url: str, token: str) -> httpx.Client:
    """A client of the API, with the attempt's credential."""
    return httpx.Client(
        base_url=api_url,
        headers={"authorization": f"Bearer {token}"},
        timeout=30.0,
        trust_env=False,  # it is our own: no proxy leads to it
    )


def _fetch_config(client: httpx.Client, attempt_id: str) -> RunConfig:
    """The attempt's config; an API that is restarting is asked again for a minute."""
    for seconds in (1, 2, 4, 8, 15, 30, None):
        try:
            answer = client.get(f"/api/v1/attempts/{attempt_id}/config")
            if answer.status_code < 500 or seconds is None:
                break
        except httpx.TransportError:
            if seconds is None:
                raise
        time.sleep(seconds)
    answer.raise_for_status()
    return RunConfig.model_validate(answer.json()["config"])


def main() -> int:
    """The entry point of a Ray job."""
    parser = argparse.ArgumentParser(description="Run one attempt of a run.")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--api-url", required=True)
    parser.add_argument("--credential-file", required=True, type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return run_attempt(arguments.attempt, arguments.api_url, arguments.credential_file)


if __name__ == "__main__":
    sys.exit(main())
