"""From what a loop knows to events: the one place where results become telemetry."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from lagoon import metrics as m
from lagoon.events import (
    MAX_PARTS,
    ControlsApplied,
    HistogramLogged,
    LogLogged,
    StatusLogged,
    StepLogged,
    TrajectoryLogged,
    TurnLogged,
)
from lagoon.ledger import Ledger
from lagoon.metrics import CATALOGUE, Metric
from lagoon.points import Point, point
from lagoon.staleness import StalenessAccount, mean
from lagoon.statistics import wilson_interval
from lagoon.trajectory import Trajectory
from workers.proof import Proof
from workers.sink import Sink

logger = logging.getLogger(__name__)

MAX_TRAJECTORIES_PER_STEP = 8
"""Readable trajectories kept of each step: the page shows the newest, not all."""
MAX_TURN_CHARACTERS = 4000
MAX_LINE_CHARACTERS = 10_000


class Reporter:
    """Sends a run's events to its sink, stamped by the given clock (Unix seconds)."""

    def __init__(self, sink: Sink, clock: Callable[[], float]) -> None:
        self._sink, self._clock = sink, clock

    def status(self, phase: str, message: str) -> None:
        """Name the phase that begins, on the page and in the log."""
        logger.info(message)
        self._sink.log(
            StatusLogged.model_validate({"at": self._clock(), "phase": phase, "message": message})
        )

    def controls(self, version: int, numbers: Sequence[int], refused: Mapping[int, str]) -> None:
        """Changes of settings that hold from the next batch on, or cannot be honoured."""
        for number, reason in refused.items():
            logger.warning("Change %d cannot be honoured: %s", number, reason)
        self._sink.log(
            ControlsApplied(
                at=self._clock(), version=version, numbers=tuple(numbers), refused=dict(refused)
            )
        )

    def step(self, step: int, points: Iterable[Point]) -> None:
        """Metrics at a step."""
        event = StepLogged(at=self._clock(), step=step, points=tuple(points))
        logger.info(_line(event))
        self._sink.log(event)

    def histogram(self, step: int, metric: Metric, counts: Mapping[int, int]) -> None:
        """Exact integer counts at a step."""
        self._sink.log(
            HistogramLogged(at=self._clock(), step=step, name=metric.name, counts=dict(counts))
        )

    def histograms(self, step: int, counts: Mapping[str, Mapping[int, int]]) -> None:
        """Exact counts of several histograms, by name, at a step."""
        for name, found in counts.items():
            self.histogram(step, CATALOGUE[name], found)

    def staleness(self, step: int, account: StalenessAccount) -> list[Point]:
        """Send the account's histograms; returns its scalars."""
        self.histograms(step, staleness_counts(account))
        return staleness_points(account)

    def evaluation(self, step: int, trajectories: Sequence[Trajectory], seconds: float) -> None:
        """Success on the held-out tasks, with its interval and a few trajectories."""
        successes = sum(trajectory.success for trajectory in trajectories)
        low, high = wilson_interval(successes, len(trajectories))
        self.step(
            step,
            [
                point(m.HELDOUT_SUCCESS, successes / len(trajectories)),
                point(m.HELDOUT_LOW, low),
                point(m.HELDOUT_HIGH, high),
                point(m.HELDOUT_TASKS, len(trajectories)),
                point(
                    m.HELDOUT_REWARD,
                    sum(trajectory.reward for trajectory in trajectories) / len(trajectories),
                ),
                point(m.EVALUATION_SECONDS, seconds),
            ],
        )
        self.trajectories(step, trajectories)

    def trajectories(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        """A few readable trajectories, spread evenly over the given ones."""
        stride = max(1, len(trajectories) // MAX_TRAJECTORIES_PER_STEP)
        for trajectory in trajectories[::stride][:MAX_TRAJECTORIES_PER_STEP]:
            self._sink.log(_readable(trajectory, step, self._clock()))


def staleness_counts(account: StalenessAccount) -> dict[str, dict[int, int]]:
    """The account's histograms, by name."""
    return {
        m.GENERATION_HISTOGRAM.name: dict(account.generation),
        m.WAITING_HISTOGRAM.name: dict(account.waiting),
        m.TOTAL_HISTOGRAM.name: dict(account.total),
        m.WORST_HISTOGRAM.name: dict(account.worst),
        m.SPAN_HISTOGRAM.name: dict(account.span),
        **({m.MASKED_HISTOGRAM.name: dict(account.masked)} if account.masked else {}),
    }


def staleness_points(account: StalenessAccount) -> list[Point]:
    """The account's scalars."""
    return [
        point(m.STALENESS_GENERATION, mean(account.generation)),
        point(m.STALENESS_WAITING, mean(account.waiting)),
        point(m.STALENESS_TOTAL, mean(account.total)),
        point(m.STALENESS_WORST, max(account.worst, default=math.nan)),
        point(m.STALENESS_COVERAGE, account.coverage),
        point(m.STALENESS_MISSING, account.missing_tokens),
    ]


IN_THE_LOG = (m.REWARD_MEAN, m.HELDOUT_SUCCESS, m.LOSS, m.UPDATE_NORM, m.STEP_SECONDS)
"""What a line of the log says of a step."""


def _line(event: StepLogged) -> str:
    shown = {metric.name for metric in IN_THE_LOG}
    words = [f"{p.name} {p.value:.4g}" for p in event.points if p.name in shown]
    return ", ".join([f"step {event.step}", *words])


def ledger_points(ledger: Ledger, target: int, limit: float) -> list[Point]:
    """Where all prompts are, and how many of them may be: ``limit`` is infinite without a bound."""
    dropped = [point(m.LEDGER_DROPPED, n, reason=reason) for reason, n in ledger.dropped.items()]
    return [
        point(m.POOL_GENERATING, ledger.generating),
        point(m.POOL_READY, ledger.ready),
        point(m.POOL_RESERVED, ledger.reserved),
        point(m.POOL_TARGET, target),
        *([point(m.POOL_LIMIT, limit)] if math.isfinite(limit) else []),
        point(m.LEDGER_ISSUED, ledger.issued),
        point(m.LEDGER_TRAINED, ledger.trained),
        *(dropped or [point(m.LEDGER_DROPPED, 0)]),
    ]


def waiting_points(backpressure_seconds: float, lost: Mapping[str, int]) -> list[Point]:
    """How long generators had to wait for training, and what they played in vain."""
    return [
        point(m.BACKPRESSURE_SECONDS, backpressure_seconds),
        *(point(m.LOST_EPISODES, count, reason=reason) for reason, count in lost.items()),
    ]


def rollout_points(trajectories: Sequence[Trajectory]) -> list[Point]:
    """What the trajectories that a step trained on looked like."""
    count = len(trajectories)
    tokens = sum(trajectory.num_actions for trajectory in trajectories)
    played = math.fsum(t.finished_at - t.started_at for t in trajectories)
    waited = math.fsum(t.info.get("environment_seconds", 0.0) for t in trajectories)
    return [
        point(m.TURNS, sum(t.num_turns for t in trajectories) / count),
        point(m.RESPONSE_TOKENS, tokens / count),
        point(m.TRUNCATED, sum(t.truncated for t in trajectories) / count),
        point(m.EPISODE_SECONDS, played / count),
        point(m.ENVIRONMENT_SECONDS, waited / count),
        point(m.TOOL_ERRORS, sum(t.info.get("tool_errors", 0.0) for t in trajectories)),
    ]


def sampling_points(sampled: int, seconds: float, so_far: int) -> list[Point]:
    """Tokens sampled for training, those that nothing was trained on included: ``sampled`` of them
    in a step of ``seconds``."""
    return [
        point(m.TOKENS_PER_SECOND, sampled / seconds if seconds > 0 else math.nan),
        point(m.TOTAL_TOKENS, so_far),
    ]


def sync_points(proof: Proof) -> list[Point]:
    """How many generators proved the published weights, and how near they came."""
    diffs = proof.logprob_diffs
    return [
        point(m.VERIFIED_ENGINES, len(proof.proven)),
        point(m.MISMATCHED_ENGINES, proof.num_mismatched),
        *([point(m.CANARY_DIFF, float(np.max(diffs)))] if diffs else []),
    ]


def _readable(trajectory: Trajectory, step: int, at: float) -> TrajectoryLogged:
    known = [version for version in trajectory.versions if version is not None]
    return TrajectoryLogged(
        at=at,
        step=step,
        trajectory_id=trajectory.trajectory_id,
        prompt_id=trajectory.prompt_id,
        split=trajectory.split,
        reward=trajectory.reward,
        success=trajectory.success,
        num_tokens=trajectory.num_actions,
        first_version=min(known, default=None),
        completed_version=trajectory.completed_version,
        truncated=trajectory.truncated,
        seconds=trajectory.finished_at - trajectory.started_at,
        turns=tuple(
            TurnLogged(
                role=turn.role,
                text=turn.text[:MAX_TURN_CHARACTERS],
                seconds=turn.seconds,
                error=turn.error,
            )
            for turn in trajectory.turns[:MAX_PARTS]
        ),
    )


class SinkHandler(logging.Handler):
    """Sends log records to the run's page."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, as lines."""
        lines = [line[:MAX_LINE_CHARACTERS] for line in self.format(record).splitlines()]
        for first in range(0, len(lines), MAX_PARTS):
            chunk = tuple(lines[first : first + MAX_PARTS])
            self._sink.log(LogLogged(at=record.created, lines=chunk))
