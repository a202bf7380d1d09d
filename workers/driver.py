"""The driver: one process per run attempt that wires a loop to its actors and reports its end.

::

    config ─▶ model folder, or checkpoint ─▶ generators + trainer (Ray) ─▶ loop ─▶ final weights
                                                                             │     ─▶ end marker
                                                                events ─▶ sink ─▶ API or JSONL file

From the moment that it has its config, its last event is the end marker: finished, stopped or
failed, with the cause in one sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ray

from lagoon.clashes import Capacity, Clash, capacity_clashes, memory_clashes
from lagoon.config import RunConfig
from lagoon.events import ResumedLogged, RunEnded
from lagoon.spools import spool_of
from workers import cluster
from workers.assignment import Assignment, fetch_assignment, open_connection
from workers.checkpoints import Checkpoints
from workers.claim import UNCLAIMED, Claim, FencedOut
from workers.environments import num_tasks
from workers.failures import RunFailed
from workers.generators import Generators
from workers.handles import GeneratorHandle
from workers.heldout import heldout_indices
from workers.loops.context import LoopContext, Outcome, Progress, supervised, unless_stopped
from workers.loops.evolution import EvolutionLoop
from workers.loops.policy_gradient import PolicyGradientLoop, TrainerHandle
from workers.models.folders import ModelError, cache_shape, model_folder
from workers.replacing import Replacements, Starter
from workers.reporting import Reporter, SinkHandler
from workers.resuming import FROM_THE_START, Candidates, Restored, restored
from workers.settings import SpoolSettings, own_home
from workers.sink import PlatformSink, Sink
from workers.steering import Controls
from workers.stops import ABANDONED, FENCED, Patience, StopSwitch, in_thread
from workers.watchdog import pulse

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
logger = logging.getLogger("lagoon.driver")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a driver runs, apart from its config."""

    sink: Sink
    checkpoints: Path
    home: Path
    stop: asyncio.Event
    candidates: Candidates = FROM_THE_START
    fencing_token: int | None = None
    """Of the credential that the platform gave this driver; None without a platform."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The Ray node of each process, where the platform has leased slots."""
    claim: Claim = UNCLAIMED
    """The right to write among the run's files."""
    controls: Controls | None = None
    """What people change of the run while it goes on; None: nobody can."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a loop needs that took time to get ready."""

    begins: Restored
    heldout: Sequence[int]
    generators: Sequence[GeneratorHandle]
    trainer: TrainerHandle | None
    another: Starter | None = None
    """Starts a generator in the place of one that died; None: its death costs the attempt."""


Start = Callable[[RunConfig, Surroundings], Coroutine[Any, Any, Started]]


async def train(
    config: RunConfig, surroundings: Surroundings, start: Start | None = None
) -> Outcome:
    """Run a config to its end. Raises ``RunFailed`` with the cause, a standstill among them.

    ``start`` makes the run's actors; Ray's unless another is given.
    """
    progress, sink = Progress(), surroundings.sink
    limit, token = config.budget.stall_seconds, surroundings.fencing_token
    heartbeats = pulse(sink, progress, limit_seconds=limit, fencing_token=token)
    run = _start_and_loop(config, surroundings, progress, start or _start)
    return await supervised(run, [heartbeats, _say_that_stop_was_heard(surroundings)])


async def _start_and_loop(
    config: RunConfig, surroundings: Surroundings, progress: Progress, start: Start
) -> Outcome:
    started = await unless_stopped(surroundings.stop, start(config, surroundings))
    if started is None:
        return "stopped"
    progress.begin(started.begins.state, started.begins.heldout_success)
    return await _loop(config, surroundings, progress, started).run()


async def _say_that_stop_was_heard(surroundings: Surroundings) -> None:
    await surroundings.stop.wait()
    words = "The stop was heard: the step in progress ends, then the weights are saved."
    Reporter(surroundings.sink, time.time).status("stopping", words)


async def _start(config: RunConfig, surroundings: Surroundings) -> Started:
    """The run's beginning, its held-out tasks, and its actors: generators with their models loaded,
    and a trainer that loads its own."""
    reporter = Reporter(surroundings.sink, time.time)
    _check_capacity(config)
    begins = await _restore(config, surroundings)
    reporter.status("starting", "Choosing held-out tasks.")
    environment = config.environment
    evaluation = config.evaluation
    heldout = await heldout_indices(
        environment,
        evaluation.num_tasks,
        num_tasks(environment, "heldout"),
        skip=evaluation.skip_tasks,
    )
    reporter.status("starting", f"Preparing the model {config.model.path!r}.")
    try:
        folder = await in_thread(model_folder, config.model.path, surroundings.home, logger.info)
    except ModelError as error:
        raise RunFailed(f"The model cannot be used: {error}", traceback.format_exc()) from error
    _check_memory(config, folder)
    if surroundings.controls:
        surroundings.controls.refuse(partial(_memory_clashes, folder))
    reporter.status("starting", "Starting generators and trainer.")
    where = (config, folder, surroundings.places)
    checkpoint, version = begins.folder, begins.state.version
    generators = cluster.start_generators(*where, checkpoint=checkpoint, version=version)
    trainer = cluster.start_trainer(*where, checkpoint=checkpoint, version=version)
    await cluster.all_started(generators, trainer)

    async def another(index: int) -> GeneratorHandle:
        reporter.status("running", f"Generator {index} has died: another is started in its place.")
        generators[index].end()
        present = surroundings.controls.config if surroundings.controls else config
        where = (present, folder, surroundings.places)
        # Its beginning is removed once newer ones are kept: then a publish has come since, which is
        # what it is given.
        held = checkpoint if checkpoint and checkpoint.is_dir() else None
        again = cluster.start_generator(*where, index, checkpoint=held, version=version)
        generators[index] = again
        await cluster.started_again(index, again)
        reporter.status("running", f"Generator {index} is there again.")
        return again

    return Started(begins, heldout, tuple(generators), trainer, another)


async def _restore(config: RunConfig, surroundings: Surroundings) -> Restored:
    """What the attempt begins with, which is also said."""
    begins = await in_thread(restored, config, surroundings.candidates)
    for reason in begins.refused:
        logger.warning("a checkpoint cannot be used: %s", reason)
    step, refused = begins.state.version, begins.refused
    if step > 0:
        path = "" if begins.folder is None else str(begins.folder)
        surroundings.sink.log(ResumedLogged(at=time.time(), step=step, path=path, refused=refused))
    return begins


def _loop(
    config: RunConfig, surroundings: Surroundings, progress: Progress, started: Started
) -> EvolutionLoop | PolicyGradientLoop:
    sink, begins = surroundings.sink, started.begins
    controls = surroundings.controls or Controls(config)
    replacement = started.another and Replacements(
        started.another, config.budget.max_restarts, lambda: progress.version
    )
    played = Generators(
        started.generators, lambda: progress.version, progress.note_trajectory, replacement
    )
    progress.ask_tools = played.all_wait_for_tools
    context = LoopContext(
        config=config,
        controls=controls,
        generators=played,
        reporter=Reporter(sink, time.time),
        progress=progress,
        stop=surroundings.stop,
        clock=time.time,
        stopwatch=controls.stopwatch,
        num_train_tasks=num_tasks(config.environment, "train"),
        heldout=started.heldout,
        checkpoints=Checkpoints(
            surroundings.checkpoints, config, sink, time.time, begins.kept, surroundings.claim
        ),
        begins=begins.state,
    )
    if started.trainer is None:
        return EvolutionLoop(context, begins.updates)
    return PolicyGradientLoop(context, started.trainer)


def _check_capacity(config: RunConfig) -> None:
    available = ray.cluster_resources()
    capacity = Capacity(cpus=available.get("CPU", 0), gpus=available.get("GPU", 0))
    for clash in capacity_clashes(config, capacity):
        raise RunFailed(f"The cluster is too small: {clash.message}.")


def _memory_clashes(folder: Path, config: RunConfig) -> Sequence[Clash]:
    """What validation checks for the models that it knows."""
    shape = cache_shape(folder)
    return memory_clashes(config, shape) if shape else ()


def _check_memory(config: RunConfig, folder: Path) -> None:
    for clash in _memory_clashes(folder, config):
        fields = ", ".join(clash.fields)
        raise RunFailed(f"The generators' memory is too small: {clash.message} ({fields}).")


def run_to_end(
    assignment: Assignment,
    sink: Sink,
    switch: StopSwitch,
    checkpoints: Path,
    home: Path,
    claim: Claim = UNCLAIMED,
    controls: Controls | None = None,
) -> RunEnded:
    """Run a config, whatever happens, and return the end marker, which was also logged.

    SIGTERM and SIGINT ask for a stop: the run saves its weights and ends as stopped, with the
    signal as its reason; one that comes long after another request ends it without saving. Who
    asked through the platform is known there, and not here. ``controls`` begin with the
    assignment's changes.
    """
    controls = controls or Controls(assignment.config, assignment.changes)

    def around(stop: asyncio.Event) -> Surroundings:
        told = (assignment.candidates, assignment.fencing_token, assignment.places)
        return Surroundings(sink, checkpoints, home, stop, *told, claim, controls)

    handler = SinkHandler(sink)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        ended = asyncio.run(_until_end(controls.config, switch, around))
    finally:
        logging.getLogger().removeHandler(handler)
    sink.log(ended)
    return ended


async def _until_end(
    config: RunConfig, switch: StopSwitch, surroundings: Callable[[asyncio.Event], Surroundings]
) -> RunEnded:
    stop, abandon = asyncio.Event(), asyncio.Event()
    patience = Patience(stop, abandon, time.monotonic)
    heard: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        heard.append(number)
        patience.ask_again()

    loop = asyncio.get_running_loop()
    switch.connect(
        lambda: loop.call_soon_threadsafe(patience.ask),
        lambda: loop.call_soon_threadsafe(abandon.set),
    )
    try:
        cluster.connect()
        # After Ray, which puts a handler of its own in the place of any that is there before.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        outcome = await unless_stopped(abandon, train(config, surroundings(stop)))
        if outcome is None:
            reason = FENCED if switch.is_fenced else ABANDONED
            return RunEnded(at=time.time(), outcome="stopped", reason=reason)
        reason = f"The driver received {heard[0].name}." if outcome == "stopped" and heard else ""
        return RunEnded(at=time.time(), outcome=outcome, reason=reason)
    except FencedOut as error:
        logger.warning("%s", error)
        return RunEnded(at=time.time(), outcome="stopped", reason=FENCED)
    except RunFailed as error:
        details = error.details or traceback.format_exc()
        return _failure(str(error), details, is_transient=error.is_transient)
    except Exception as error:  # the end marker must be written whatever went wrong
        return _failure(f"The driver failed: {error}".splitlines()[0], traceback.format_exc())
    finally:
        switch.disconnect()
        with contextlib.suppress(Exception):  # a cluster that is gone cannot be left
            ray.shutdown()


def _failure(reason: str, details: str, *, is_transient: bool = False) -> RunEnded:
    logger.error("%s\n%s", reason, details)
    return RunEnded(
        at=time.time(),
        outcome="failed",
        reason=reason,
        traceback=details,
        is_transient=is_transient,
    )


def run_attempt(
    attempt_id: str, api_url: str, credential: Path, fencing_token: int | None = None
) -> int:
    """Run one attempt of a platform's run: its config comes from the API, its events go there.

    Nothing is started when the attempt is not, or no longer, this driver's.
    """
    token = credential.read_text(encoding="utf-8").strip()
    home = own_home()
    folder = home / "attempts" / attempt_id
    switch = StopSwitch()
    with open_connection(api_url, token) as client:
        try:
            given = fetch_assignment(client, attempt_id, fencing_token)
            claim = _claim(given, home, switch)
            claim.take()
        except FencedOut as error:
            logger.error("%s", error)
            return 1
        controls = Controls(given.config, given.changes)
        sink = PlatformSink(
            client,
            attempt_id,
            spool_of(home, attempt_id),
            switch.request,
            on_fenced=switch.fence,
            on_changes=controls.deliver,
            quota_bytes=SpoolSettings().spool_quota_bytes,
        )
        try:
            ended = run_to_end(given, sink, switch, folder / "checkpoints", home, claim, controls)
        finally:
            arrived = sink.close()
    return 1 if ended.outcome == "failed" or not arrived else 0


def _claim(given: Assignment, home: Path, switch: StopSwitch) -> Claim:
    """On the files of the whole run: it is in the folder of the first attempt, for all."""
    path = home / "attempts" / f"{given.run_id}-a1" / "claim"
    return Claim(path, given.attempt, given.fencing_token or 0, lambda: switch.is_fenced)


def main() -> int:
    """The entry point of a Ray job."""
    parser = argparse.ArgumentParser(description="Run one attempt of a run.")
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--api-url", required=True)
    parser.add_argument("--credential-file", required=True, type=Path)
    parser.add_argument("--fencing-token", type=int)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return run_attempt(
        arguments.attempt, arguments.api_url, arguments.credential_file, arguments.fencing_token
    )


if __name__ == "__main__":
    sys.exit(main())
