from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from lagoon.dropping import (
    NUM_HALVINGS,
    NUM_STAGES,
    Dropped,
    fully_reduced,
    make_room,
    reduced,
)
from lagoon.events import (
    CheckpointLogged,
    Event,
    HeartbeatLogged,
    HistogramLogged,
    LogLogged,
    RunEnded,
    StatusLogged,
    StepLogged,
    TelemetryDropped,
    TrajectoryLogged,
    TurnLogged,
)
from lagoon.metrics import (
    LEDGER_DROPPED,
    LEDGER_ISSUED,
    LOSS,
    POOL_GENERATING,
    POOL_READY,
    POOL_RESERVED,
    SIGMA,
    TOTAL_HISTOGRAM,
)
from lagoon.points import Point

FIRST_THINNED, NO_POINTS = 3, NUM_STAGES - 1


def trajectory(text: str = "some words", error: str | None = None) -> TrajectoryLogged:
    turns = (TurnLogged(role="assistant", text=text, seconds=1.5, error=error),)
    return TrajectoryLogged(
        at=1.0,
        step=1,
        trajectory_id="t",
        prompt_id="p",
        split="train",
        reward=1.0,
        success=True,
        num_tokens=3,
        first_version=0,
        completed_version=0,
        truncated=False,
        seconds=2.0,
        turns=turns,
    )


BALANCE = [
    each.name
    for each in (LEDGER_ISSUED, LEDGER_DROPPED, POOL_GENERATING, POOL_READY, POOL_RESERVED)
]
points = st.builds(
    Point,
    name=st.sampled_from([LOSS.name, SIGMA.name, *BALANCE]),
    value=st.floats(allow_nan=False),
    labels=st.dictionaries(st.sampled_from(["reason", "stat"]), st.sampled_from("ab"), max_size=1),
)
times = st.floats(0, 2e9)
events = st.one_of(
    st.builds(StepLogged, at=times, step=st.integers(0, 9), points=st.lists(points).map(tuple)),
    st.builds(
        HistogramLogged,
        at=times,
        step=st.integers(0, 9),
        name=st.just(TOTAL_HISTOGRAM.name),
        counts=st.dictionaries(st.integers(0, 3), st.integers(0, 3)),
    ),
    st.builds(trajectory, st.text(max_size=20), st.none() | st.text(max_size=5)),
    st.builds(StatusLogged, at=times, phase=st.just("running"), message=st.text(max_size=5)),
    st.builds(HeartbeatLogged, at=times, step=st.integers(0, 9), pid=st.just(1), host=st.just("h")),
    st.builds(LogLogged, at=times, lines=st.lists(st.text(max_size=20)).map(tuple)),
    st.builds(
        CheckpointLogged,
        at=times,
        step=st.integers(0, 9),
        path=st.just("w"),
        is_final=st.booleans(),
    ),
    st.builds(TelemetryDropped, at=times, cause=st.just("quota"), counts=st.just({"log_lines": 3})),
    st.builds(RunEnded, at=times, outcome=st.just("failed"), reason=st.text(max_size=5)),
)
many = st.lists(events, max_size=30)

PROTECTED = (StatusLogged, CheckpointLogged, TelemetryDropped, RunEnded)


def protected(of: list[Event]) -> list[Event]:
    return [event for event in of if isinstance(event, PROTECTED)]


def ledger(of: list[Event]) -> list[tuple[int, Point]]:
    steps = [event for event in of if isinstance(event, StepLogged)]
    return [(e.step, p) for e in steps for p in e.points if p.name in BALANCE]


def num_other_points(of: list[Event]) -> int:
    return sum(len(e.points) for e in of if isinstance(e, StepLogged)) - len(ledger(of))


def of_type(of: list[Event], kind: type) -> list[Event]:
    return [event for event in of if isinstance(event, kind)]


@given(many, st.integers(0, NUM_STAGES - 1))
def test_no_stage_touches_run_events_the_ledger_or_the_newest_heartbeat(
    before: list[Event], stage: int
) -> None:
    after, _ = reduced(before, stage)
    assert protected(after) == protected(before)
    assert ledger(after) == ledger(before)
    assert of_type(after, HeartbeatLogged) == of_type(before, HeartbeatLogged)[-1:]


@given(many)
def test_stages_drop_one_kind_after_the_other_and_count_what_they_drop(before: list[Event]) -> None:
    texts, dropped = reduced(before, 0)
    assert set(dropped) <= {"trajectory_texts"}
    assert len(of_type(texts, TrajectoryLogged)) == len(of_type(before, TrajectoryLogged))
    assert not any(
        turn.text or turn.error
        for event in texts
        if isinstance(event, TrajectoryLogged)
        for turn in event.turns
    )
    without, dropped = reduced(texts, 1)
    gone = len(of_type(before, TrajectoryLogged))
    assert dropped == ({"trajectories": gone} if gone else {})
    assert not of_type(without, TrajectoryLogged)
    silent, dropped = reduced(without, 2)
    lines = sum(len(e.lines) for e in before if isinstance(e, LogLogged))
    assert dropped == ({"log_lines": lines} if lines else {})
    assert num_other_points(silent) == num_other_points(before)
    assert len(of_type(silent, HistogramLogged)) == len(of_type(before, HistogramLogged))
    bare, dropped = reduced(silent, NO_POINTS)
    assert dropped["points"] == num_other_points(before)
    assert dropped["histograms"] == len(of_type(before, HistogramLogged))
    assert num_other_points(bare) == 0


@given(st.integers(0, 600), st.integers(0, NUM_HALVINGS))
def test_of_each_series_every_second_point_stays_from_the_first_on(
    count: int, num_halvings: int
) -> None:
    kept: list[Event] = []
    for step in range(count):
        labelled = Point(name=SIGMA.name, value=step, labels={"stat": "a"})
        loss = (Point(name=LOSS.name, value=step),) if step % 2 else ()
        kept.append(StepLogged(at=0.0, step=step, points=(labelled, *loss)))
        kept.append(HistogramLogged(at=0.0, step=step, name=TOTAL_HISTOGRAM.name, counts={0: 1}))
    for number in range(num_halvings):
        kept, _ = reduced(kept, FIRST_THINNED + number)
    stride = 2**num_halvings
    steps = [event for event in kept if isinstance(event, StepLogged)]
    values = {
        name: [p.value for event in steps for p in event.points if p.name == name]
        for name in (SIGMA.name, LOSS.name)
    }
    assert values[SIGMA.name] == list(range(0, count, stride))
    assert values[LOSS.name] == list(range(1, count, 2 * stride))
    histograms = [event.step for event in kept if isinstance(event, HistogramLogged)]
    assert histograms == list(range(0, count, stride))


@dataclass
class Held:
    """Events as a portion, measured as they would be written."""

    events: list[Event]
    stage: int = 0
    dropped: Dropped = field(default_factory=Counter)

    @property
    def num_bytes(self) -> int:
        return sum(len(event.model_dump_json()) for event in self.events)

    def advance(self) -> None:
        self.events, dropped = reduced(self.events, self.stage)
        self.dropped += dropped
        self.stage += 1


@given(st.lists(many, max_size=6), st.floats(0, 1))
def test_afterwards_all_fits_or_only_what_is_never_dropped_is_left(
    parts: list[list[Event]], share: float
) -> None:
    portions = [Held(list(part)) for part in parts]
    before = sum(portion.num_bytes for portion in portions)
    bound = int(before * share)
    left = make_room(portions, before - bound)
    after = sum(portion.num_bytes for portion in portions)
    assert left == max(0, after - bound)
    if left:
        assert all(portion.events == fully_reduced(portion.events)[0] for portion in portions)
    stages = [portion.stage for portion in portions]
    assert stages == sorted(stages, reverse=True)  # the oldest lose first
    assert not stages or max(stages) - min(stages) <= 1  # and none a stage more than the others
    for portion, part in zip(portions, parts, strict=True):
        assert protected(portion.events) == protected(part)
        assert ledger(portion.events) == ledger(part)


def test_nothing_is_dropped_where_there_is_room() -> None:
    portion = Held([trajectory()])
    assert make_room([portion], 0) == 0
    assert portion.events == [trajectory()]


def test_a_portion_that_cannot_be_reduced_now_is_passed_over() -> None:
    class Stuck(Held):
        def advance(self) -> None:
            pass

    stuck, free = Stuck([trajectory()]), Held([trajectory("x" * 1000)])
    assert make_room([stuck, free], 900) == 0
    assert free.dropped == {"trajectory_texts": 1}
