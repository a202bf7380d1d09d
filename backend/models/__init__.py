"""Every table."""

from backend.models.account import ApiKey, SignIn, SignInAllowance, Ticket, User
from backend.models.base import Base
from backend.models.control import RunChange
from backend.models.experiment import Experiment
from backend.models.metric import MetricLatest, MetricSeries, histograms, metric_points
from backend.models.outbox import ClusterObservation, IdempotencyKey, OutboxMessage
from backend.models.run import Attempt, Checkpoint, IngestCursor, LogLine, Run, RunEvent
from backend.models.slots import ClusterNode, Lease
from backend.models.storage import RunStorage
from backend.models.trajectory import TrajectoryRecord

__all__ = [
    "ApiKey",
    "Attempt",
    "Base",
    "Checkpoint",
    "ClusterNode",
    "ClusterObservation",
    "Experiment",
    "IdempotencyKey",
    "IngestCursor",
    "Lease",
    "LogLine",
    "MetricLatest",
    "MetricSeries",
    "OutboxMessage",
    "Run",
    "RunChange",
    "RunEvent",
    "RunStorage",
    "SignIn",
    "SignInAllowance",
    "Ticket",
    "TrajectoryRecord",
    "User",
    "histograms",
    "metric_points",
]
