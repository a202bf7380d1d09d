"""The shapes of what the API answers, as the dashboard reads them."""

from typing import Any, TypedDict

from lagoon.stalls import Activity

Config = dict[str, Any]
"""A run configuration as JSON. Its shape is the API's schema, which may be newer than this code."""

Schema = dict[str, Any]
"""A JSON schema."""


class User(TypedDict):
    """Who is signed in."""

    id: str
    username: str
    role: str


class RunSummary(TypedDict):
    """A run in a list. Times are ISO 8601, UTC."""

    id: str
    name: str
    experiment_id: str
    owner: str
    status: str
    reason: str | None
    priority: str
    queue_position: int | None
    """The place of a queued run, from 1."""
    condition: str
    """How an active run is, beside its status; empty: all is well."""
    condition_since: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    step: int
    max_steps: int
    method: str
    environment: str
    model: str
    first_heldout_success: float | str | None
    last_heldout_success: float | str | None
    last_reward: float | str | None
    control: str
    cursor: int


class Attempt(TypedDict):
    """One try of a run on the cluster."""

    number: int
    is_restart: bool
    resumed_step: int | None
    status: str
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    reason: str | None
    trajectories: int
    activity: Activity | None
    idle_seconds: float | None
    stop_heard_at: str | None
    stop_saved_at: str | None
    marker_at: str | None
    num_processes: int | None
    gone_at: str | None


class Checkpoint(TypedDict):
    """Weights that were kept, with what a run needs to go on from them."""

    id: int
    attempt: int
    step: int
    path: str
    is_final: bool
    is_best: bool
    num_bytes: int | None


class RunReference(TypedDict):
    """Another run, by id and name."""

    run_id: str
    name: str


class FirstNan(TypedDict):
    """The first value of a run that was not a number."""

    name: str
    step: int


class FirstMismatch(TypedDict):
    """The first publish after which a generator did not hold the published weights."""

    attempt: int
    step: int


class Missing(TypedDict):
    """Data of a run, of one kind, that is not there any more, or never arrived."""

    kind: str
    num_expired: int
    num_dropped: int


class RunDetail(RunSummary):
    """A run with everything its page's header needs."""

    config: Config
    waiting_for: RunReference | None
    attempts: list[Attempt]
    desired: str
    stop_requested_at: str | None
    stop_requested_by: str | None
    is_paused: bool
    """Whether people want it to be paused."""
    num_changes: int
    first_nan: FirstNan | None
    first_mismatch: FirstMismatch | None
    traceback: str | None
    checkpoints: list[Checkpoint]
    parent_run_id: str | None
    parent_step: int | None
    missing: list[Missing]


class Experiment(TypedDict, total=False):
    """A shared page: title, notes, runs."""

    id: str
    title: str
    notes: str
    owner: str
    created_at: str
    num_runs: int
    runs: list[RunSummary]


class Points(TypedDict):
    """A series' values, by position."""

    step: list[int]
    value: list[float | str]
    at: list[str | float]


class Series(TypedDict):
    """One metric of a run, thinned to what a chart can show."""

    name: str
    labels: dict[str, str]
    n_total: int
    n_shown: int
    method: str
    nan_steps: list[int]
    points: Points


class MetricsPage(TypedDict):
    """Series and the cursor to ask for what comes after them."""

    cursor: str | int
    series: list[Series]


class HistogramStep(TypedDict):
    """Exact counts of the steps from ``first_step`` to ``step``; keys are integers as text."""

    step: int
    first_step: int
    counts: dict[str, int]


class Histogram(TypedDict):
    """Counts over steps and in all."""

    cursor: str | int
    items: list[HistogramStep]
    total: dict[str, dict[str, int]]


class TurnRecord(TypedDict):
    """One message of a trajectory."""

    role: str
    text: str
    seconds: float | str
    error: str | None


class TrajectoryRecord(TypedDict):
    """One episode, readable."""

    trajectory_id: str
    step: int
    prompt_id: str
    split: str
    reward: float | str
    success: bool
    num_tokens: int
    first_version: int | None
    completed_version: int
    truncated: bool
    seconds: float | str
    turns: list[TurnRecord]


class TrajectoryPage(TypedDict):
    """Trajectories, newest first, and the cursor of the next page."""

    items: list[TrajectoryRecord]
    next: str | None


Value = bool | int | float | None
"""A value that may be changed while a run goes on."""


class Change(TypedDict):
    """What somebody has changed of a running run, and what became of it."""

    number: int
    requested_at: str
    requested_by: str
    before: dict[str, Value]
    after: dict[str, Value]
    words: str
    state: str
    why: str
    attempt: int | None
    version: int | None
    applied_at: str | None


class Controls(TypedDict):
    """The settings of a run that may be changed, as they are wanted, and its changes so far."""

    values: dict[str, Value]
    changes: list[Change]


class LogLine(TypedDict):
    """A line of the driver's log."""

    n: int
    at: str
    attempt: int
    line: str


class LogPage(TypedDict):
    """Log lines and where to go on."""

    items: list[LogLine]
    next_after: int


RunEvent = TypedDict(
    "RunEvent",
    {
        "n": int,
        "at": str,
        "attempt": int | None,
        "kind": str,
        "from": str | None,
        "to": str | None,
        "reason": str | None,
        "by": str | None,
    },
)
"""A change in a run's life, with its reason."""


class MetricRecord(TypedDict):
    """A metric of the catalogue."""

    name: str
    unit: str
    description: str
    kind: str
    panel: str


class ChoiceRecord(TypedDict, total=False):
    """A method, an environment or a model that can be chosen."""

    name: str
    title: str
    help: str
    paper: str
    family: str
    path: str
    missing: str
    schema: Schema


class Catalogue(TypedDict):
    """What this installation can run and report."""

    methods: list[ChoiceRecord]
    environments: list[ChoiceRecord]
    metrics: list[MetricRecord]
    models: list[ChoiceRecord]


class Preset(TypedDict):
    """A configuration to start from."""

    name: str
    title: str
    description: str
    yaml: str
    config: Config


class Sizes(TypedDict):
    """Bytes by what they hold."""

    checkpoint_bytes: int
    trajectory_bytes: int
    log_bytes: int
    metric_bytes: int
    spool_bytes: int
    total_bytes: int


class RunSizes(Sizes):
    """What one run takes."""

    run_id: str
    name: str
    owner: str
    status: str


class HomeSizes(TypedDict):
    """The machine that the API runs on."""

    database_bytes: int
    disk_free_bytes: int
    disk_total_bytes: int
    checkpoint_quota_bytes: int | None


class Storage(TypedDict):
    """What the viewer's runs take; the home as a whole is for admins."""

    num_runs: int
    total: Sizes
    runs: list[RunSizes]
    home: HomeSizes | None


class Check(TypedDict):
    """The state of one part of the platform."""

    ok: bool
    detail: str | None


class Readiness(TypedDict):
    """Whether the platform can work, by part."""

    status: str
    checks: dict[str, Check]
