"""Combinations of settings that cannot be honoured: refused, with the fields that clash, instead
of ignored. A setting without effect in its combination is a clash too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lagoon.config import RunConfig


@dataclass(frozen=True, slots=True)
class Clash:
    """Two (or more) fields, by dotted path, that exclude each other, and why."""

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
    found = [*method.clashes(config), *_lengths(config), *_checkpoints(config)]
    if method.family == "evolution":
        found += _evolution(config)
    else:
        found += _policy_gradient(config)
    return found


def capacity_clashes(config: RunConfig, capacity: Capacity) -> list[Clash]:
    """Where the run asks for more than the cluster has."""
    resources, generators = config.resources, config.rollout.num_generators
    trainer = config.trainer
    found = []
    for kind, per_generator, for_trainer, available in (
        ("gpus", resources.gpus_per_generator, trainer.gpus if trainer else 0, capacity.gpus),
        ("cpus", resources.cpus_per_generator, trainer.cpus if trainer else 0, capacity.cpus),
    ):
        needed = generators * per_generator + for_trainer
        if needed > available:
            found.append(
                Clash(
                    ("rollout.num_generators", f"resources.{kind}_per_generator"),
                    f"{generators} generators with {per_generator:g} {kind.upper()} each"
                    + (f" and a trainer with {for_trainer:g}" if for_trainer else "")
                    + f" need {needed:g} {kind.upper()}; the cluster has {available:g}",
                )
            )
    return found


def _lengths(config: RunConfig) -> Iterator[Clash]:
    environment = config.environment
    if environment.max_tokens_per_turn >= config.model.max_length_tokens:
        yield Clash(
            ("environment.max_tokens_per_turn", "model.max_length_tokens"),
            f"a turn of {environment.max_tokens_per_turn} tokens leaves no room for a prompt in "
            f"{config.model.max_length_tokens}",
        )


def _checkpoints(config: RunConfig) -> Iterator[Clash]:
    every_steps, max_steps = config.checkpoint.every_steps, config.budget.max_steps
    # Compared with the default: a resolved configuration, which has all fields set, stays valid.
    keep, default = config.checkpoint.keep, type(config.checkpoint).model_fields["keep"].default
    if every_steps is None and keep != default:
        yield Clash(
            ("checkpoint.keep", "checkpoint.every_steps"),
            f"keeping {keep} checkpoints has no effect without checkpoint.every_steps: only the "
            "final weights are saved",
        )
    if every_steps is not None and every_steps > max_steps:
        yield Clash(
            ("checkpoint.every_steps", "budget.max_steps"),
            f"a checkpoint every {every_steps} steps is never due in {max_steps} steps; the final "
            "weights are saved anyway",
        )


def _evolution(config: RunConfig) -> Iterator[Clash]:
    if config.trainer is not None:
        changed = sorted(config.trainer.model_fields_set) or ["learning_rate"]
        for name in changed:
            yield Clash(
                (f"trainer.{name}", "method.name"),
                f"{config.method.title} takes no gradient steps, so trainer.{name} would have no "
                "effect; its step size is method.alpha",
            )


def _policy_gradient(config: RunConfig) -> Iterator[Clash]:
    if config.rollout.temperature == 0:
        yield Clash(
            ("rollout.temperature", "method.name"),
            "greedy rollouts (temperature 0) make the trajectories of a prompt equal, so "
            f"{config.method.title} would have nothing to learn from",
        )
    trainer = config.trainer
    if trainer is not None and trainer.warmup_steps >= config.budget.max_steps:
        yield Clash(
            ("trainer.warmup_steps", "budget.max_steps"),
            f"a warm-up of {trainer.warmup_steps} steps never ends in "
            f"{config.budget.max_steps} steps",
        )
