from typing import Any

import pytest
from pydantic import ValidationError

from lagoon.config import RunConfig
from lagoon.corrections import CORRECTIONS
from lagoon.methods.async_grpo import AsyncGRPO
from lagoon.methods.base import EVERY_MODE, PolicyGradient
from lagoon.methods.pace import Pace
from lagoon.methods.sao import SAO
from lagoon.problems import field_problems
from tests.builders import es_config, grpo_config


def with_method(**method: Any) -> RunConfig:
    return grpo_config(method={"num_prompts": 2, "group_size": 2} | method)


def test_an_async_method_overlaps_unless_its_bound_is_0() -> None:
    unfiltered = with_method(name="async_grpo").method
    assert (unfiltered.staleness_bound, unfiltered.hard_bound) == (None, None)
    assert unfiltered.weight_update_modes == EVERY_MODE
    strict = with_method(name="async_grpo", max_staleness=3, drop_stale=True).method
    assert (strict.staleness_bound, strict.hard_bound) == (3, 3)
    synchronous = with_method(name="async_grpo", max_staleness=0)
    assert synchronous.method.weight_update_modes == ()
    assert synchronous.rollout.weight_update_mode is None


def test_the_method_decides_what_becomes_of_episodes_in_flight_unless_the_run_does() -> None:
    assert with_method(name="async_grpo").rollout.weight_update_mode == "keep"
    assert with_method(name="one_step_off").rollout.weight_update_mode == "wait"
    assert grpo_config().rollout.weight_update_mode is None
    assert es_config().rollout.weight_update_mode is None
    chosen = grpo_config(method={"name": "async_grpo"}, rollout={"weight_update_mode": "abort"})
    assert RunConfig.model_validate_json(chosen.model_dump_json()) == chosen


@pytest.mark.parametrize(
    ("sections", "fields"),
    [
        (
            {"method": {"name": "grpo"}, "rollout": {"weight_update_mode": "keep"}},
            {"rollout.weight_update_mode", "method.name"},
        ),
        (
            {
                "method": {"name": "async_grpo", "max_staleness": 0},
                "rollout": {"weight_update_mode": "wait"},
            },
            {"rollout.weight_update_mode", "method.name"},
        ),
        (
            {"method": {"name": "one_step_off"}, "rollout": {"weight_update_mode": "keep"}},
            {"rollout.weight_update_mode", "method.name"},
        ),
        (
            {"method": {"name": "one_step_off"}, "rollout": {"max_concurrent": 100}},
            {"rollout.max_concurrent", "method.num_prompts", "method.group_size"},
        ),
        (
            {"method": {"name": "async_grpo", "drop_stale": True}},
            {"method.drop_stale", "method.max_staleness"},
        ),
        (
            {"method": {"name": "async_grpo", "drop_stale": True, "max_staleness": 0}},
            {"method.drop_stale", "method.max_staleness"},
        ),
        (
            {"method": {"name": "async_grpo", "max_staleness": 2, "correction": "none"}},
            {"method.max_staleness", "method.correction"},
        ),
        (
            {"method": {"name": "sao", "group_size": 2}},
            {"method.group_size", "method.name"},
        ),
        (
            {"method": {"name": "pace", "target": 15}},
            {"method.target", "method.num_prompts"},
        ),
        (
            {"method": {"name": "async_grpo", "critic_updates": 2}},
            {"method.critic_updates", "method.name"},
        ),
        ({"method": {"name": "pace", "gamma": -0.1}}, {"method.gamma"}),
        (
            {"method": {"name": "async_grpo", "group_size": 1}},
            {"method.group_size", "method.name"},
        ),
        (
            {"method": {"name": "async_grpo", "correction": "none", "ratio_high": 2}},
            {"method.ratio_high", "method.correction"},
        ),
        (
            {"method": {"name": "async_grpo", "correction": "tis", "ratio_low": 0.5}},
            {"method.ratio_low", "method.correction"},
        ),
        (
            {"method": {"name": "async_grpo", "correction": "clip", "ratio_cap": 2}},
            {"method.ratio_cap", "method.correction"},
        ),
    ],
)
def test_what_would_have_no_effect_is_refused_with_its_fields(
    sections: dict[str, Any], fields: set[str]
) -> None:
    with pytest.raises(ValidationError) as caught:
        grpo_config(**sections)
    (problem,) = field_problems(caught.value, RunConfig)
    assert set(problem.fields) == fields


@pytest.mark.parametrize("name", ["async_grpo", "pace", "sao", "one_step_off"])
@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}])
def test_sampling_that_leaves_tokens_out_is_no_setting_of_any_method(
    name: str, cut: dict[str, Any]
) -> None:
    """The trainer's log-probabilities are of the whole distribution, and so are the engine's."""
    with pytest.raises(ValidationError) as caught:
        grpo_config(method={"name": name}, rollout=cut)
    (problem,) = field_problems(caught.value, RunConfig)
    (missing,) = cut
    assert problem.fields == (f"rollout.{missing}",)
    assert problem.message.startswith(f"there is no {missing}: it would draw from another")


@pytest.mark.parametrize(
    ("method", "field", "words"),
    [
        (Pace, "target", "Ours: the paper's is not known"),
        (Pace, "smoothing", "0.9, and that it begins at 0, is ours"),
        (Pace, "smoothing", "So is what becomes of the budget: the fraction"),
        (Pace, "gamma", "of equal scores the oldest"),
        (SAO, "max_staleness", "any bound is ours"),
        (SAO, "drop_stale", "(ours)"),
        (Pace, "excess", "Ours, where the paper's digest leaves it open"),
        (Pace, "gamma", "Ours: what drifts is the mean absolute change"),
        (Pace, "rescore", "Ours: what is not known is when the paper asks"),
        (AsyncGRPO, "correction", "weighs what it keeps with r (ours)"),
        (AsyncGRPO, "ratio_high", "cispo 5 (ours)"),
        (AsyncGRPO, "ratio_cap", "5 (ours)"),
        (SAO, "discount", "Ours: the notes on the paper give no value"),
        (SAO, "whiten", "that it is off is ours"),
        (SAO, "critic_rate_factor", "the same schedule (ours)"),
    ],
)
def test_what_papers_leave_open_is_said_to_be_ours_in_the_help_of_its_field(
    method: type[PolicyGradient], field: str, words: str
) -> None:
    assert words in " ".join(str(method.model_fields[field].description).split())


def test_without_a_correction_there_is_no_bound_or_nothing_stale() -> None:
    for bound in (None, 0):
        method = with_method(name="async_grpo", correction="none", max_staleness=bound).method
        assert not method.needs_behavior


def test_a_critic_belongs_to_methods_without_groups() -> None:
    with pytest.raises(ValidationError) as caught:
        grpo_config(method={"name": "pace", "critic_updates": 2, "grup_size": 4})
    problems = {each.fields[0]: each for each in field_problems(caught.value, RunConfig)}
    assert problems["method.critic_updates"].message == "critic_updates is a setting of sao alone"
    assert problems["method.grup_size"].fields == ("method.grup_size",)
    assert problems["method.grup_size"].hint == "method.group_size"


def test_the_bounds_of_a_correction_are_its_own_unless_the_run_sets_them() -> None:
    method = with_method(name="async_grpo", correction="dis", ratio_high=4).method
    assert (method.band.low, method.band.high) == (0.7, 4)
    assert with_method(name="async_grpo").method.band == CORRECTIONS["clip"].band()


def test_a_method_says_what_its_correction_reads() -> None:
    def needs(correction: str) -> tuple[bool, bool]:
        method = with_method(name="async_grpo", correction=correction).method
        return method.needs_behavior, method.needs_proximal

    assert needs("none") == (False, False)
    assert needs("icepop") == (True, False)
    assert needs("decoupled") == (True, True)
    assert grpo_config().method.needs_behavior


def test_an_evolution_run_has_no_episodes_in_flight_during_an_update() -> None:
    with pytest.raises(ValidationError, match="the mode has no effect"):
        es_config(rollout={"weight_update_mode": "keep"})
