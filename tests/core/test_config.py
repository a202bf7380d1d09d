import pytest
from pydantic import ValidationError

from lagoon.clashes import Capacity, capacity_clashes, memory_clashes
from lagoon.config import RunConfig
from lagoon.environments import ENVIRONMENTS
from lagoon.methods import METHODS
from lagoon.models import CacheShape
from lagoon.problems import FieldProblem, field_problems
from tests.builders import es_config, grpo_config


def problems(data: dict) -> list[FieldProblem]:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(data)
    return field_problems(caught.value, RunConfig)


def minimal(method: dict, **sections: object) -> dict:
    return {"environment": {"name": "calculator"}, "method": method, **sections}


@pytest.mark.parametrize("config", [grpo_config(), es_config()])
def test_a_resolved_config_survives_json_and_resolves_to_itself(config: RunConfig) -> None:
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_an_unknown_key_is_refused_with_the_nearest_valid_name() -> None:
    (problem,) = problems(minimal({"name": "grpo", "grup_size": 3}))
    assert problem.fields == ("method.grup_size",)
    assert problem.hint == "method.group_size"
    (problem,) = problems(minimal({"name": "grpo"}, rollout={"temprature": 1}))
    assert problem.hint == "rollout.temperature"


@pytest.mark.parametrize("knob", ["top_p", "top_k", "min_p"])
def test_sampling_from_another_distribution_than_the_policys_cannot_be_asked_for(knob: str) -> None:
    """Every correction divides by the log-probabilities of the one that was sampled from."""
    (problem,) = problems(minimal({"name": "async_grpo"}, rollout={knob: 1}))
    assert problem.fields == (f"rollout.{knob}",)


def test_an_unknown_method_is_refused_with_the_nearest_valid_name() -> None:
    (problem,) = problems(minimal({"name": "gpro"}))
    assert problem.fields == ("method.name",)
    assert problem.hint == "grpo"


@pytest.mark.parametrize(("section", "known"), [("method", METHODS), ("environment", ENVIRONMENTS)])
def test_a_section_without_its_name_says_which_names_there_are(section: str, known: tuple) -> None:
    (problem,) = problems(minimal({"name": "grpo"}) | {section: {}})
    assert problem.fields == (f"{section}.name",)
    names = ", ".join(cls.model_fields["name"].default for cls in known)
    assert problem.message == f"name is missing: it says which {section}; known: {names}"


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"name": "calculator", "num_operations": 7}, "environment.num_operations"),
        ({"name": "sudoku4", "num_blanks": 4, "max_turns": 3}, "environment.num_blanks"),
    ],
)
def test_too_few_turns_for_a_solution_are_refused_naming_both_fields(
    environment: dict, field: str
) -> None:
    (problem,) = problems(minimal({"name": "grpo"}) | {"environment": environment})
    assert problem.fields == ("environment.max_turns", field)
    assert problem.message.startswith(f"max_turns {environment.get('max_turns', 6)} is too short")


def test_held_out_waits_of_a_tool_that_never_waits_are_refused() -> None:
    environment = {"name": "calculator", "mean_wait_seconds": 0, "heldout_waits": False}
    (problem,) = problems(minimal({"name": "grpo"}) | {"environment": environment})
    assert problem.fields == ("environment.heldout_waits", "environment.mean_wait_seconds")


def test_as_many_turns_as_a_solution_takes_are_enough() -> None:
    for environment in (
        {"name": "calculator", "num_operations": 5, "max_turns": 6},
        {"name": "sudoku4", "num_blanks": 4, "max_turns": 4},
    ):
        assert RunConfig.model_validate(minimal({"name": "grpo"}) | {"environment": environment})


def test_a_learning_rate_schedule_clashes_with_evolution_strategies() -> None:
    (problem,) = problems(minimal({"name": "es"}, trainer={"learning_rate_schedule": "cosine"}))
    assert problem.fields == ("trainer.learning_rate_schedule", "method.name")


def test_a_group_of_one_clashes_with_grpo() -> None:
    (problem,) = problems(minimal({"name": "grpo", "group_size": 1}))
    assert problem.fields == ("method.group_size", "method.name")


def test_greedy_rollouts_clash_with_policy_gradients() -> None:
    (problem,) = problems(minimal({"name": "grpo"}, rollout={"temperature": 0}))
    assert problem.fields == ("rollout.temperature", "method.name")


def test_a_divisor_without_effect_is_refused() -> None:
    (problem,) = problems(minimal({"name": "grpo", "length_constant": 5}))
    assert problem.fields == ("method.length_constant", "method.aggregation")


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    (problem,) = problems(
        minimal({"name": "grpo"}, trainer={"warmup_steps": 9}, budget={"max_steps": 9})
    )
    assert problem.fields == ("trainer.warmup_steps", "budget.max_steps")


def test_a_standstill_that_is_shorter_than_a_tool_may_take_is_refused() -> None:
    (problem,) = problems(minimal({"name": "grpo"}, budget={"stall_seconds": 300}))
    assert problem.fields == ("budget.stall_seconds", "rollout.tool_timeout_seconds")
    assert "a tool may take 300 s" in problem.message


@pytest.mark.parametrize(
    ("method", "sections", "fields"),
    [
        (
            "grpo",
            {"checkpoint": {"every_steps": 10}, "budget": {"max_steps": 9}},
            ("checkpoint.every_steps", "budget.max_steps"),
        ),
    ],
)
def test_a_checkpoint_setting_without_effect_is_refused(
    method: str, sections: dict, fields: tuple[str, str]
) -> None:
    (problem,) = problems(minimal({"name": method}, **sections))
    assert problem.fields == fields


def test_an_epsilon_that_divides_nothing_is_refused() -> None:
    (problem,) = problems(minimal({"name": "grpo", "deviation": "none", "epsilon": 0.1}))
    assert problem.fields == ("method.epsilon", "method.deviation")


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"checkpoint": {"every_steps": 9}, "budget": {"max_steps": 9}},
        {"checkpoint": {"every_steps": 1, "keep": 3}},
        {"evaluation": {"every_steps": 10}, "budget": {"max_steps": 9}},
        {"method": {"name": "grpo", "deviation": "none"}},
        {"method": {"name": "grpo", "epsilon": 0.1}},
    ],
)
def test_settings_with_an_effect_are_accepted_and_resolve_to_themselves(sections: dict) -> None:
    config = RunConfig.model_validate(minimal({"name": "grpo"}) | sections)
    assert RunConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(
    ("section", "name"), [("trainer", "gpus"), ("resources", "gpus_per_generator")]
)
def test_gpus_are_whole_or_a_share_of_one(section: str, name: str) -> None:
    (problem,) = problems(minimal({"name": "grpo"}, **{section: {name: 1.5}}))
    assert problem.fields == (f"{section}.{name}",)
    assert problem.message.startswith("1.5 GPUs cannot be reserved: give a whole number")
    for fits in (0, 0.25, 1, 2):
        config = grpo_config(**{section: {name: fits}})
        assert RunConfig.model_validate(config.model_dump()) == config


def test_more_gpus_than_exist_are_refused_naming_the_two_fields() -> None:
    config = grpo_config(resources={"gpus_per_generator": 2}, rollout={"num_generators": 3})
    (clash,) = capacity_clashes(config, Capacity(cpus=64, gpus=4))
    assert clash.fields == ("rollout.num_generators", "resources.gpus_per_generator")
    assert clash.message == "the run needs 6 GPUs (3 generators with 2 each); the cluster has 4"
    assert capacity_clashes(config, Capacity(cpus=64, gpus=6)) == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gpus", "the run needs 8 GPUs (1 generator with 0, a trainer with 8); the cluster has 4"),
        ("cpus", "the run needs 9 CPUs (1 generator with 1, a trainer with 8); the cluster has 4"),
    ],
)
def test_a_trainer_that_is_too_large_clashes_with_what_the_generators_take(
    kind: str, message: str
) -> None:
    config = grpo_config(trainer={kind: 8})
    (clash,) = capacity_clashes(config, Capacity(cpus=4, gpus=4))
    assert clash.fields == (f"trainer.{kind}", f"resources.{kind}_per_generator")
    assert clash.message == message


def test_generators_that_do_not_fit_alone_are_not_the_trainers_clash() -> None:
    config = grpo_config(resources={"cpus_per_generator": 8}, trainer={"cpus": 1})
    (clash,) = capacity_clashes(config, Capacity(cpus=4, gpus=0))
    assert clash.fields == ("rollout.num_generators", "resources.cpus_per_generator")


@pytest.mark.parametrize(
    ("rollout", "length", "message"),
    [
        (
            {},
            256,
            "128 episodes of up to 256 tokens take 1.41 GiB of keys and values, but the generator "
            "has 1 GiB, which holds 91",
        ),
        (
            {"num_generators": 2, "max_concurrent": 129, "kv_cache_gib": 0.5},
            225,
            "65 episodes of up to 225 tokens take 0.714 GiB of keys and values, but each generator "
            "has 0.5 GiB, which holds 45",
        ),
    ],
)
def test_more_concurrency_than_the_engines_memory_holds_is_refused(
    rollout: dict, length: int, message: str
) -> None:
    model = {"path": "smollm2-135m-instruct", "max_length_tokens": length}
    (problem,) = problems(minimal({"name": "grpo"}, model=model, rollout=rollout))
    assert problem.fields == (
        "rollout.max_concurrent",
        "rollout.kv_cache_gib",
        "model.max_length_tokens",
    )
    assert problem.message == message
    fits = int(message.rpartition(" ")[2]) * rollout.get("num_generators", 1)
    for places, clashes in ((fits, False), (fits + 1, True)):
        sections = {"model": model, "rollout": rollout | {"max_concurrent": places}}
        try:
            RunConfig.model_validate(minimal({"name": "grpo"}, **sections))
        except ValidationError:
            assert clashes
        else:
            assert not clashes


def test_what_was_accepted_when_it_was_stored_can_be_read_whatever_clashes_by_now() -> None:
    stored = minimal({"name": "grpo"}, model={"path": "smollm2-135m-instruct"})
    assert problems(stored)
    found = RunConfig.stored(stored)
    assert (found.rollout.max_concurrent, found.rollout.temperature) == (128, 1.0)
    with pytest.raises(ValidationError):
        RunConfig.stored(stored | {"budget": {"max_stepz": 3}})


def test_half_the_bytes_of_a_number_hold_twice_as_many_episodes() -> None:
    shape = CacheShape(num_layers=2, num_heads=4, head_size=8)
    assert shape.sequence_bytes(33, "float32") == 64 * 2 * 2 * 4 * 8 * 4
    assert shape.sequence_bytes(33, "bfloat16") * 2 == shape.sequence_bytes(64, "float32")
    config = grpo_config(model={"path": "/models/mine"}, rollout={"kv_cache_gib": 2**-10})
    assert memory_clashes(config, shape)[0].message.endswith("which holds 8")
    roomy = grpo_config(model={"path": "/models/mine"}, rollout={"max_concurrent": 4096})
    assert not memory_clashes(roomy, shape)


def test_the_method_decides_the_temperature_unless_the_run_does() -> None:
    assert grpo_config().rollout.temperature == 1.0
    assert es_config().rollout.temperature == 0.0
    assert grpo_config(rollout={"temperature": 0.7}).rollout.temperature == 0.7


def test_only_policy_gradients_have_a_trainer() -> None:
    assert grpo_config().trainer is not None
    assert es_config().trainer is None


@pytest.mark.parametrize("model", [*METHODS, *ENVIRONMENTS, RunConfig])
def test_every_field_of_a_schema_has_a_help_text(model: type) -> None:
    for name, field in model.model_fields.items():  # type: ignore[attr-defined]
        assert name == "name" or field.description, f"{model.__name__}.{name}"


def test_every_method_has_a_title_a_paper_and_a_docstring() -> None:
    for method in METHODS:
        assert method.title
        assert method.paper
        assert method.__doc__
