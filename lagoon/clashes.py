"""Combinations of settings that cannot be honoured: refused, with the fields that clash, instead
of ignored. A setting without effect in its combination is a clash too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lagoon.models import CacheShape, known_model

if TYPE_CHECKING:
    from lagoon.config import RunConfig
    from lagoon.methods import PolicyGradient


GIB = 2**30


@dataclass(frozen=True, slots=True)
class Clash:
    """Fields, by dotted path, that exclude each other or what there is, and why."""

    fields: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the cluster has in all."""

    cpus: float
    gpus: float


def clashes(config: RunConfig) -> list[Clash]:
    """Everything in ``config`` that contradicts something else in it."""
    method = config.method
    found = [*method.clashes(config), *config.environment.clashes()]
    found += [*_lengths(config), *_checkpoints(config), *_stalls(config)]
    if known := known_model(config.model.path):
        found += memory_clashes(config, known.cache)
    if method.family == "evolution":
        found += _evolution(config)
    else:
        found += _policy_gradient(config)
    return found


def capacity_clashes(config: RunConfig, capacity: Capacity) -> list[Clash]:
    """Where the run asks for more than the cluster has."""
    resources, trainer = config.resources, config.trainer
    gpus, cpus = (trainer.gpus, trainer.cpus) if trainer else (0, 0)
    found = (
        _over("GPU", config, resources.gpus_per_generator, gpus, capacity.gpus),
        _over("CPU", config, resources.cpus_per_generator, cpus, capacity.cpus),
    )
    return [clash for clash in found if clash is not None]


def memory_clashes(config: RunConfig, shape: CacheShape) -> list[Clash]:
    """More episodes in flight than a generator's memory for keys and values holds, all of them at
    their full length, where the model keeps ``shape`` of every token.

    An engine would take them, and throw out of its memory what it has to compute again.
    """
    rollout, length = config.rollout, config.model.max_length_tokens
    places = -(-rollout.max_concurrent // rollout.num_generators)
    each, memory = shape.sequence_bytes(length, config.model.dtype), rollout.kv_cache_gib * GIB
    if places * each <= memory:
        return []
    whose = "the generator" if rollout.num_generators == 1 else "each generator"
    message = (
        f"{places} episodes of up to {length} tokens take {places * each / GIB:.3g} GiB of keys "
        f"and values, but {whose} has {rollout.kv_cache_gib:g} GiB, which holds "
        f"{int(memory // each)}"
    )
    fields = ("rollout.max_concurrent", "rollout.kv_cache_gib", "model.max_length_tokens")
    return [Clash(fields, message)]


def _over(
    kind: str, config: RunConfig, each: float, for_trainer: float, available: float
) -> Clash | None:
    """Too much of one kind of resource: the trainer's doing, unless the generators' alone is.

    Generators and trainer share what there is, so the trainer's clash names theirs as well.
    """
    num_generators = config.rollout.num_generators
    for_generators = num_generators * each
    needed = for_generators + for_trainer
    if needed <= available:
        return None
    asked = f"{_counted(num_generators, 'generator')} with {each:g}"
    if num_generators > 1:
        asked += " each"
    if for_trainer:
        asked += f", a trainer with {for_trainer:g}"
    blamed = "rollout.num_generators" if for_generators > available else f"trainer.{kind.lower()}s"
    return Clash(
        (blamed, f"resources.{kind.lower()}s_per_generator"),
        f"the run needs {_counted(needed, kind)} ({asked}); the cluster has {available:g}",
    )


def _counted(count: float, what: str) -> str:
    return f"{count:g} {what}" + ("" if count == 1 else "s")


def _lengths(config: RunConfig) -> Iterator[Clash]:
    environment = config.environment
    if environment.max_tokens_per_turn >= config.model.max_length_tokens:
        yield Clash(
            ("environment.max_tokens_per_turn", "model.max_length_tokens"),
            f"a turn of {environment.max_tokens_per_turn} tokens leaves no room for a prompt in "
            f"{config.model.max_length_tokens}",
        )


def _stalls(config: RunConfig) -> Iterator[Clash]:
    limit, tool = config.budget.stall_seconds, config.rollout.tool_timeout_seconds
    if limit <= tool:
        yield Clash(
            ("budget.stall_seconds", "rollout.tool_timeout_seconds"),
            f"a tool may take {tool:g} s to answer, but a run without progress is ended after "
            f"{limit:g} s: a hung tool would end the run instead of its episode",
        )


def _checkpoints(config: RunConfig) -> Iterator[Clash]:
    every_steps, max_steps = config.checkpoint.every_steps, config.budget.max_steps
    if every_steps is not None and every_steps > max_steps:
        yield Clash(
            ("checkpoint.every_steps", "budget.max_steps"),
            f"a checkpoint every {every_steps} steps is never due in {max_steps} steps; the final "
            "weights are saved anyway",
        )


def _evolution(config: RunConfig) -> Iterator[Clash]:
    yield from _weight_updates(config, ())
    if config.trainer is not None:
        changed = sorted(config.trainer.model_fields_set) or ["learning_rate"]
        for name in changed:
            yield Clash(
                (f"trainer.{name}", "method.name"),
                f"{config.method.title} takes no gradient steps, so trainer.{name} would have no "
                "effect; its step size is method.alpha",
            )


def _weight_updates(config: RunConfig, modes: tuple[str, ...]) -> Iterator[Clash]:
    chosen, title = config.rollout.weight_update_mode, config.method.title
    if chosen is None or chosen in modes:
        return
    message = (
        f"{title} is made of {' or '.join(map(repr, modes))}: another mode would be another method"
        if modes
        else f"no episode of {title} is in flight when weights change: the mode has no effect"
    )
    yield Clash(("rollout.weight_update_mode", "method.name"), message)


def _policy_gradient(config: RunConfig) -> Iterator[Clash]:
    yield from _weight_updates(config, cast("PolicyGradient", config.method).weight_update_modes)
    if config.rollout.temperature == 0:
        yield Clash(
            ("rollout.temperature", "method.name"),
            "greedy rollouts (temperature 0) are not sampled from the policy whose gradient "
            f"{config.method.title} estimates: they never try what it might do instead",
        )
    trainer = config.trainer
    if trainer is not None and trainer.warmup_steps >= config.budget.max_steps:
        yield Clash(
            ("trainer.warmup_steps", "budget.max_steps"),
            f"a warm-up of {trainer.warmup_steps} steps never ends in "
            f"{config.budget.max_steps} steps",
        )
