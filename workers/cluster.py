"""Ray: where a run's actors live, and how the driver calls them.

Every actor declares its CPUs and GPUs, so that the same job fits one machine or a cluster of many.
Actors belong to the driver: when it ends, they end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lagoon.config import RunConfig
from lagoon.homes import make_short_folder
from lagoon.methods import PolicyGradient
from lagoon.trajectory import TrainingSample, Trajectory
from workers.actors.generator import GeneratorActor
from workers.actors.trainer import TrainerActor
from workers.failures import RunFailed, failure
from workers.handles import UpdateReport
from workers.rollout import EpisodeFailure, EpisodeRequest, Sampled
from workers.settings import own_home
from workers.step_report import StepReport

T = TypeVar("T")
logger = logging.getLogger(__name__)

START_SECONDS = 1800.0
"""How long an actor may take to find its place and load its model."""

NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No leases: Ray finds the places, as in a run without a platform."""

ACTOR_CONCURRENCY = 64
"""Calls a generator serves at once: one long poll, and submissions beside it."""


class ProcessDied(RuntimeError):
    """An actor's process is gone, without an error of its own."""

    is_transient = True

    def __init__(self) -> None:
        super().__init__(
            "its process was killed or crashed (is its machine out of memory?); weights that were "
            "saved before are safe"
        )


FAILURES = (ray.exceptions.RayError, ProcessDied)
"""What calling an actor raises."""


class RemoteActor:
    """What generators and the trainer have in common as Ray actors."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._loading: Any = None

    def load(self) -> None:
        """Have it load the model, unless it was told to before."""
        self._loading = self._loading or self._actor.ready.remote()

    async def loaded(self) -> None:
        """Wait until it has loaded the model."""
        self.load()
        await _answered(self._loading)

    def end(self) -> None:
        """Kill its process, if there still is one; its engine's ends with it."""
        ray.kill(self._actor)

    async def place(self) -> str:
        """The host and the Ray node that it runs on."""
        found: str = await _answered(self._actor.__ray_call__.remote(_own_place))
        return found


class RemoteGenerator(RemoteActor):
    """A generator in a Ray actor."""

    async def prepare(self) -> None:
        """Wait until it has imported what its engine needs."""
        await _answered(self._actor.prepare.remote())

    async def submit(self, requests: Sequence[EpisodeRequest]) -> None:
        """Start episodes."""
        await _answered(self._actor.submit.remote(list(requests)))

    async def collect(self) -> list[Trajectory | EpisodeFailure]:
        """Wait for at least one finished episode and return all finished ones."""
        finished: list[Trajectory | EpisodeFailure] = await _answered(self._actor.collect.remote())
        return finished

    async def give_up(self, trajectory_ids: Sequence[str]) -> None:
        """End episodes that nobody waits for."""
        await _answered(self._actor.give_up.remote(list(trajectory_ids)))

    async def openings(
        self, requests: Sequence[EpisodeRequest]
    ) -> list[list[int]] | EpisodeFailure:
        """The prompts that episodes begin with. Nothing is sampled."""
        found: list[list[int]] | EpisodeFailure = await _answered(
            self._actor.openings.remote(list(requests))
        )
        return found

    async def probe(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Sampled]:
        """The greedy continuations of prompts."""
        sampled: list[Sampled] = await _answered(self._actor.probe.remote(prompts, num_tokens))
        return sampled

    async def tools_waited_for(self) -> tuple[int, int]:
        """Episodes that wait for a tool at this moment, and all in flight."""
        found: tuple[int, int] = await _answered(self._actor.tools_waited_for.remote())
        return found

    async def steer(self, places: int, *, is_paused: bool) -> None:
        """Play at most ``places`` episodes at once; while paused sample nothing."""
        await _answered(self._actor.steer.remote(places, is_paused=is_paused))

    async def publish(self, version: int, weights: Any) -> str:
        """Load published weights; returns the checksum of what arrived."""
        checksum: str = await _answered(self._actor.publish.remote(version, weights))
        return checksum

    async def perturb(self, seed: int, sigma: float, noise: str) -> None:
        """Load the master weights plus noise."""
        await _answered(self._actor.perturb.remote(seed, sigma, noise))

    async def update(
        self, version: int, seeds: Sequence[int], coefficients: Sequence[float], noise: str
    ) -> UpdateReport:
        """Add a weighted sum of noise to the master weights and load them."""
        report: UpdateReport = await _answered(
            self._actor.update.remote(version, list(seeds), list(coefficients), noise)
        )
        return report

    async def save(self, folder: str) -> None:
        """Write the master weights as a model folder."""
        await _answered(self._actor.save.remote(folder))


class RemoteTrainer(RemoteActor):
    """The trainer in a Ray actor."""

    _is_ready = False

    async def ready(self) -> None:
        """Wait until it can take steps; raises ``RunFailed`` when it could not start."""
        if not self._is_ready:
            await _ready("The trainer", self)
            self._is_ready = True

    async def step(self, samples: Sequence[TrainingSample], learning_rate: float) -> StepReport:
        """One optimizer step."""
        report: StepReport = await _from_trainer(
            self._actor.step.remote(list(samples), learning_rate)
        )
        return report

    async def logprobs(
        self, samples: Sequence[TrainingSample], temperature: float | None = None
    ) -> list[list[float]]:
        """Log-probabilities of each sample's own tokens under the present weights."""
        scores: list[list[float]] = await _from_trainer(
            self._actor.logprobs.remote(list(samples), temperature)
        )
        return scores

    async def weights(self) -> tuple[Any, str]:
        """A reference to the weights, which never pass through the driver, and their checksum."""
        weights, checksum = self._actor.weights.options(num_returns=2).remote()
        return weights, await _from_trainer(checksum)

    async def save(self, folder: str) -> None:
        """Write the weights as a model folder."""
        await _from_trainer(self._actor.save.remote(folder))


def _own_place(_actor: object) -> str:
    """Where the process runs that this is called in."""
    return f"host {socket.gethostname()}, Ray node {ray.get_runtime_context().get_node_id()[:12]}"


async def _answered(answer: Awaitable[T]) -> T:
    """An actor's answer. Raises ``ProcessDied`` in place of Ray's own error, which is a report."""
    try:
        return await answer
    except ray.exceptions.ActorDiedError as error:
        if error.actor_init_failed:  # it has an error of its own
            raise
        raise ProcessDied from error


async def _from_trainer(answer: Awaitable[T]) -> T:
    try:
        return await _answered(answer)
    except FAILURES as error:
        raise failure("The trainer failed", error) from error


def connect() -> None:
    """Join the cluster of ``RAY_ADDRESS``, or start a small one that ends with this process."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=True, logging_level="WARNING")
    else:
        ray.init(address="local", logging_level="WARNING", **own_cluster(own_home()))


def own_cluster(home: Path) -> dict[str, Any]:
    """What a small cluster of our own is started with. Its files and sockets are the home's.

    They are apart from those of the platform, which removes old ones when it starts.
    """
    return {
        "num_cpus": os.cpu_count(),
        "include_dashboard": False,
        "object_store_memory": 512 * 1024**2,
        "_temp_dir": str(make_short_folder(home) / "train"),
    }


def start_generators(
    config: RunConfig,
    model_folder: Path,
    places: Mapping[str, str] = NOWHERE,
    *,
    checkpoint: Path | None = None,
    version: int = 0,
) -> list[RemoteGenerator]:
    """Ask Ray for the run's generators; they load their engines at the same time.

    ``places`` are the nodes that the platform leased slots on, by process. They begin with the
    model folder, or with ``checkpoint`` as ``version``.
    """
    return [
        start_generator(config, model_folder, places, index, checkpoint=checkpoint, version=version)
        for index in range(config.rollout.num_generators)
    ]


def start_generator(
    config: RunConfig,
    model_folder: Path,
    places: Mapping[str, str],
    index: int,
    *,
    checkpoint: Path | None = None,
    version: int = 0,
) -> RemoteGenerator:
    """Ask Ray for one of the run's generators, in the place that was leased for it."""
    resources = config.resources
    placed = ray.remote(GeneratorActor).options(
        num_cpus=resources.cpus_per_generator,
        num_gpus=resources.gpus_per_generator,
        max_concurrency=ACTOR_CONCURRENCY,
        scheduling_strategy=strategy(places.get(f"generator {index}"), "SPREAD"),
    )
    threads = max(1, int(resources.cpus_per_generator))
    arguments = (str(model_folder), config.model_dump(mode="json"), threads)
    return RemoteGenerator(placed.remote(*arguments, index, _text(checkpoint), version))


def start_trainer(
    config: RunConfig,
    model_folder: Path,
    places: Mapping[str, str] = NOWHERE,
    *,
    checkpoint: Path | None = None,
    version: int = 0,
) -> RemoteTrainer | None:
    """Ask Ray for the trainer; None for methods without gradients."""
    if config.trainer is None:
        return None
    threads = trainer_threads(config, places)
    actor_class = ray.remote(TrainerActor).options(
        num_cpus=config.trainer.cpus,
        num_gpus=config.trainer.gpus,
        scheduling_strategy=strategy(places.get("trainer"), "DEFAULT"),
    )
    arguments = (str(model_folder), config.model_dump(mode="json"), threads)
    return RemoteTrainer(actor_class.remote(*arguments, _text(checkpoint), version))


def trainer_threads(config: RunConfig, places: Mapping[str, str] = NOWHERE) -> int:
    """As many as the trainer has CPUs. In a synchronous run, whose phases take turns, those of the
    generators on its node as well: they stand still while it works.

    Without leases the run is on one machine.
    """
    assert config.trainer is not None
    method, cpus = config.method, config.trainer.cpus
    if isinstance(method, PolicyGradient) and method.staleness_bound == 0:
        here = places.get("trainer")
        generators = range(config.rollout.num_generators)
        beside = sum(places.get(f"generator {index}") == here for index in generators)
        cpus += beside * config.resources.cpus_per_generator
    return max(1, int(cpus))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def strategy(node: str | None, otherwise: str) -> Any:
    """The leased node; any other where that is gone, and as ``otherwise`` says without a lease."""
    return NodeAffinitySchedulingStrategy(node, soft=True) if node else otherwise


async def all_started(generators: Sequence[RemoteGenerator], trainer: RemoteTrainer | None) -> None:
    """Wait until every generator has loaded its model; raises ``RunFailed`` naming the one that
    could not.

    The trainer loads its own from the moment that the generators have their imports behind them,
    which on few cores it would only slow down, and is waited for by the loop.
    """
    named = {f"Generator {index}": generator for index, generator in enumerate(generators)}
    await asyncio.gather(*(_started(name, actor.prepare()) for name, actor in named.items()))
    if trainer is not None:
        trainer.load()
    await asyncio.gather(*(_ready(name, actor) for name, actor in named.items()))


async def started_again(index: int, generator: RemoteGenerator) -> RemoteGenerator:
    """Wait until a generator that takes the place of another has loaded its model."""
    await _ready(f"Generator {index}", generator)
    return generator


async def _ready(name: str, actor: RemoteActor) -> None:
    await _started(name, actor.loaded())
    logger.info("%s is ready on %s.", name, await actor.place())


async def _started(name: str, answer: Awaitable[None]) -> None:
    """Wait for an answer of an actor that starts; ``RunFailed`` names it when there is none."""
    try:
        await asyncio.wait_for(answer, START_SECONDS)
    except FAILURES as error:
        raise failure(f"{name} could not start", error) from error
    except TimeoutError as error:
        raise RunFailed(
            f"{name} did not start within {START_SECONDS:g} s: no node of the cluster has what it "
            "asks for free, or its model takes too long to load."
        ) from error
