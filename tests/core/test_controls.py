"""Which settings may change while a run goes on, and what a log of changes comes to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagoon.config import RunConfig
from lagoon.controls import (
    PAUSED,
    Change,
    Controlled,
    Refused,
    changeable,
    folded,
    in_words,
    superseded,
)
from lagoon.methods import METHODS
from tests.builders import es_config, grpo_config

PACE = {"name": "pace", "num_prompts": 2, "group_size": 2, "target": 6}
ASYNC = {"name": "async_grpo", "num_prompts": 2, "group_size": 2, "max_staleness": 2}
SAO = {"name": "sao", "num_prompts": 2, "critic_warmup_steps": 0, "max_staleness": 2}
ONE_STEP_OFF = {"name": "one_step_off", "num_prompts": 2, "group_size": 2}
CONFIGS = {
    "grpo": grpo_config(),
    "async_grpo": grpo_config(method=ASYNC),
    "checked again": grpo_config(method=ASYNC | {"drop_stale": True}),
    "sao": grpo_config(method=SAO),
    "one_step_off": grpo_config(method=ONE_STEP_OFF),
    "pace": grpo_config(method=PACE),
    "es": es_config(),
}
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.floats(-1, 10)
)
NAMES = st.sampled_from(
    [PAUSED, "rollout.max_concurrent", "method.max_staleness", "method.target", "method.gamma",
     "budget.max_steps"]
)  # fmt: skip


@given(st.sampled_from(sorted(CONFIGS)), st.lists(st.dictionaries(NAMES, VALUES, max_size=3)))
def test_any_changes_that_are_accepted_leave_a_valid_config_and_replay_to_the_same(
    name: str, asked: list[dict[str, Any]]
) -> None:
    state, log = Controlled(CONFIGS[name]), list[Change]()
    for settings in asked:
        before = state
        try:
            state = state.after(settings)
        except Refused:
            continue
        log.append(Change(number=len(log) + 1, settings=settings))
        assert any(state.values[path] != before.values[path] for path in settings)
    again = folded(CONFIGS[name], [Change.model_validate_json(c.model_dump_json()) for c in log])
    assert again == state
    assert RunConfig.model_validate(state.config.model_dump(mode="json")) == state.config
    # Nothing but what may change has changed.
    same = Controlled(state.config).values | {PAUSED: False}
    back = {k: v for k, v in Controlled(CONFIGS[name]).values.items() if same[k] != v}
    if back:
        assert Controlled(state.config).after(back).config == CONFIGS[name]


def test_what_may_change_is_the_methods_own_word() -> None:
    found = {name: changeable(config)[1:] for name, config in CONFIGS.items()}
    assert found["grpo"] == found["one_step_off"] == found["es"] == ()
    assert found["async_grpo"] == found["sao"] == ("method.max_staleness",)
    assert found["pace"] == ("method.target", "method.gamma")
    for method in METHODS:
        assert set(method.live) <= set(method.model_fields)


@pytest.mark.parametrize(
    ("name", "settings", "fields"),
    [
        ("pace", {"method.target": 1}, ("method.target", "method.num_prompts")),
        ("pace", {"method.gamma": -1.0}, ("method.gamma",)),
        ("grpo", {"method.gamma": 2.0}, ("method.gamma", "method.name")),
        ("pace", {"method.max_staleness": 2}, ("method.max_staleness", "method.name")),
        ("grpo", {"budget.max_steps": 9}, ("budget.max_steps",)),
        ("grpo", {"rollout.max_concurrent": 0}, ("rollout.max_concurrent",)),
        ("grpo", {"rollout.max_concurrent": 65536},
         ("rollout.max_concurrent", "rollout.kv_cache_gib", "model.max_length_tokens")),
        ("grpo", {"rollout.max_concurrent": True}, ("rollout.max_concurrent",)),
        ("grpo", {"rollout.max_concurrent": 128}, ("rollout.max_concurrent",)),
        ("grpo", {PAUSED: False}, (PAUSED,)),
        ("grpo", {PAUSED: 1}, (PAUSED,)),
        ("grpo", {}, ("settings",)),
        ("checked again", {"method.max_staleness": None},
         ("method.drop_stale", "method.max_staleness")),
        ("async_grpo", {"method.max_staleness": 0}, ("method.max_staleness", "method.name")),
        ("one_step_off", {"rollout.max_concurrent": 3},
         ("rollout.max_concurrent", "method.num_prompts", "method.group_size")),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_honoured_names_its_fields(
    name: str, settings: dict[str, Any], fields: tuple[str, ...]
) -> None:
    with pytest.raises(Refused) as refused:
        Controlled(CONFIGS[name]).after(settings)
    assert [problem.fields for problem in refused.value.problems] == [fields]


def test_a_run_that_takes_turns_does_not_begin_to_overlap_on_the_way() -> None:
    config = grpo_config(method=ASYNC | {"max_staleness": 0})
    with pytest.raises(Refused, match="fork it to go on the other way"):
        Controlled(config).after({"method.max_staleness": 2})


def test_of_changes_that_take_effect_together_the_last_word_on_each_setting_counts() -> None:
    log = [
        Change(number=1, settings={"method.target": 8, "method.gamma": 1.0}),
        Change(number=2, settings={"method.target": 9}),
        Change(number=3, settings={PAUSED: True}),
        Change(number=4, settings={"method.gamma": 3.0, PAUSED: False}),
        Change(number=5, settings={"method.target": 10}),
    ]
    assert superseded(log) == {1, 2, 3}
    assert superseded(log[:2]) == frozenset()


def test_what_was_asked_for_on_top_of_a_change_that_was_refused_since_is_passed_over() -> None:
    log = [
        Change(number=2, settings={"method.target": 6}),  # from the 8 of number 1, which is gone
        Change(number=3, settings={"method.gamma": 1.0}),
    ]
    state = folded(CONFIGS["pace"], log)
    assert (state.values["method.target"], state.values["method.gamma"]) == (6, 1.0)


def test_a_change_is_told_as_people_read_it() -> None:
    before = {"method.gamma": 4.0, "method.max_staleness": None, PAUSED: False}
    after = {"method.gamma": 0.5, "method.max_staleness": 8, PAUSED: True}
    assert in_words(before, after) == "gamma 4 → 0.5, max_staleness none → 8, paused"
    assert in_words({PAUSED: True}, {PAUSED: False}) == "resumed"
