from lagoon.config import RunConfig
from tests.builders import grpo_config
from workers.cluster import trainer_threads

ON_TWO_NODES = {"trainer": "a", "generator 0": "a", "generator 1": "b"}


def of(name: str, *, cpus: float = 1, each: float = 1) -> RunConfig:
    return grpo_config(
        method={"name": name, "num_prompts": 2, "group_size": 2},
        rollout={"num_generators": 2},
        trainer={"cpus": cpus},
        resources={"cpus_per_generator": each},
    )


def test_a_synchronous_trainer_has_the_cores_of_the_generators_that_wait_beside_it() -> None:
    assert trainer_threads(of("grpo")) == 3
    assert trainer_threads(of("grpo"), ON_TWO_NODES) == 2
    assert trainer_threads(of("grpo", cpus=2, each=0)) == 2


def test_an_asynchronous_trainer_has_its_own_cores_alone() -> None:
    assert trainer_threads(of("async_grpo", cpus=2)) == 2
    assert trainer_threads(of("one_step_off", cpus=0)) == 1


def test_an_asynchronous_method_with_a_bound_of_zero_takes_turns_too() -> None:
    config = of("async_grpo")
    method = config.method.model_copy(update={"max_staleness": 0})
    assert trainer_threads(config.model_copy(update={"method": method})) == 3
