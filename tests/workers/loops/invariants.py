"""What must hold of every run, however generation, training and deaths fell together."""

from collections import Counter
from typing import Any

from lagoon import metrics as m
from lagoon.config import RunConfig
from tests.builders import grpo_config
from tests.workers.fakes import ListSink
from tests.workers.streaming import Ran
from workers.loops.state import LoopState

NUM_STEPS = 6
UNFILTERED: dict[str, Any] = {"name": "async_grpo"}
PACED: dict[str, Any] = {"name": "pace", "target": 4}
SINGLE: dict[str, Any] = {"name": "sao", "critic_warmup_steps": 1}
ONE_STEP_OFF: dict[str, Any] = {"name": "one_step_off"}


def overlapping(
    method: dict[str, Any], mode: str | None = None, *, steps: int = NUM_STEPS, places: int = 16
) -> RunConfig:
    return grpo_config(
        method={"num_prompts": 2} | ({} if method["name"] == "sao" else {"group_size": 2}) | method,
        rollout={"weight_update_mode": mode, "max_concurrent": places},
        budget={"max_steps": steps},
        checkpoint={"every_steps": 2},
    )


def prompts_are_somewhere(run: Ran, state: LoopState) -> None:
    """Each issued prompt was trained on once, waits, is in flight, or was dropped."""
    trained = [position for batch in run.trainer.positions() for position in batch]
    waiting = [int(group.trajectories[0].trajectory_id.split("/")[1]) for group in state.pool]
    seen = [*trained, *waiting, *state.in_flight]
    assert len(seen) == len(set(seen)) == state.ledger.issued - state.ledger.num_dropped
    assert set(seen) <= set(range(state.ledger.issued))
    assert state.ledger.trained == len(trained) == 2 * NUM_STEPS
    assert state.ledger.is_balanced
    assert state.tokens is not None
    assert state.tokens.is_balanced
    in_pool = [each for group in state.pool for each in group.trajectories]
    assert state.tokens.ready == sum(each.num_actions for each in in_pool)
    batches = [sample.trajectory for batch in run.trainer.batches for sample in batch]
    assert state.tokens.trained == sum(each.num_actions for each in batches)
    assert state.trained.trajectories == len(batches)
    # Evaluation is outside: what was sampled is of training alone, wherever it is now.
    assert {each.split for each in (*in_pool, *batches)} == {"train"}
    dropped = sum(each.tokens for each in state.lost.values())
    assert state.tokens.issued == state.tokens.ready + state.tokens.trained + dropped


def labels_are_true(run: Ran) -> None:
    """Every trained token was sampled with the weights that it is labelled with."""
    sampled_with = {id: found for g in run.generators for id, found in g.sampled_with.items()}
    for batch in run.trainer.batches:
        for sample in batch:
            given = sample.trajectory
            assert sampled_with[given.trajectory_id] == list(given.versions[1:])


def histograms_are_exact(run: Ran) -> None:
    for version, batch in enumerate(run.trainer.batches):
        known = [
            (v, s.trajectory.completed_version) for s in batch for v in s.trajectory.versions[1:]
        ]
        total = Counter(version - sampled for sampled, _ in known if sampled is not None)
        generation = Counter(done - sampled for sampled, done in known if sampled is not None)
        waiting = Counter(version - done for _, done in known)
        step = version + 1
        assert run.sink.histograms(m.TOTAL_HISTOGRAM)[step] == total
        assert run.sink.histograms(m.GENERATION_HISTOGRAM)[step] == generation
        assert run.sink.histograms(m.WAITING_HISTOGRAM)[step] == waiting
        assert min([*total, *generation, *waiting]) >= 0


def bounds_hold(run: Ran) -> None:
    method, lags = run.loop.method, run.trainer.lags()
    if method.hard_bound is not None:
        assert max(lags) <= method.hard_bound
    if method.staleness_bound == 0:
        assert set(lags) == {0}
    if run.loop.context.config.rollout.weight_update_mode == "wait":
        spans = run.sink.histograms(m.SPAN_HISTOGRAM).values()
        assert {span for counts in spans for span in counts} == {1}


def evaluations_are_of_their_versions(run: Ran, config: RunConfig) -> None:
    assert list(run.sink.values(m.HELDOUT_SUCCESS)) == [0, 2, 4, 6]
    assert set(run.sink.values(m.HELDOUT_TASKS).values()) == {config.evaluation.num_tasks}
    for generator in run.generators:
        for id, weights in generator.sampled_with.items():
            split, version, _ = id.split("/")
            if split == "heldout":
                assert set(weights) == {int(version)}


def is_balanced(sink: ListSink, step: int) -> bool:
    """Both ledgers, as reported."""
    tokens = {p.labels["place"]: p.value for at, p in sink.points(m.LEDGER_TOKENS) if at == step}
    issued_tokens = tokens.pop("issued")
    tokens |= {
        p.labels["reason"]: p.value for at, p in sink.points(m.LEDGER_TOKENS_DROPPED) if at == step
    }
    places = (m.POOL_GENERATING, m.POOL_READY, m.POOL_RESERVED, m.LEDGER_TRAINED, m.LEDGER_DROPPED)
    parts = sum(p.value for each in places for at, p in sink.points(each) if at == step)
    is_balanced_in_tokens = issued_tokens == sum(tokens.values()) > 0
    return is_balanced_in_tokens and bool(sink.values(m.LEDGER_ISSUED)[step] == parts)
