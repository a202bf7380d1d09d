import sys

import pytest

from lagoon.environments.reasoning_gym import ReasoningGym
from workers.environments import demonstrate, make_environment
from workers.environments.reasoning_gym import MissingPackage, UnknownDataset, package, task

CONFIG = ReasoningGym(dataset="basic_arithmetic")
SMALL = ReasoningGym(
    dataset="chain_sum",
    dataset_options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
)
"""A dataset with few questions, so that chance meetings would show."""


def test_a_missing_package_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingPackage, match="Install it with: make reasoning-gym") as raised:
        package()
    assert "\n" not in str(raised.value)


class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def _package(self) -> None:
        pytest.importorskip("reasoning_gym", reason="reasoning-gym needs a C compiler to install")

    async def test_the_datasets_own_scorer_pays(self) -> None:
        question, answer = demonstrate(CONFIG, "train", 3)[-2:]
        world = make_environment(CONFIG, "train", 3)
        opening = await world.start()
        assert [message.role for message in opening] == ["system", "user"]
        assert opening[-1] == question
        end = await world.step(f" {answer.text}\n")
        assert (end.reward, end.done, end.success) == (1.0, True, True)

    async def test_solved_examples_stand_before_each_question_as_turns(self) -> None:
        config = CONFIG.model_copy(update={"num_examples": 2})
        first = await make_environment(config, "heldout", 3).start()
        second = await make_environment(config, "heldout", 4).start()
        roles = ["system", "user", "assistant", "user", "assistant", "user"]
        assert [message.role for message in first] == roles
        assert first[:-1] == second[:-1]
        assert first[1] != first[3]
        assert first[-1] == (await make_environment(CONFIG, "heldout", 3).start())[-1]

    async def test_no_example_is_a_held_out_question(self) -> None:
        config = SMALL.model_copy(update={"num_examples": 16})
        shown = {message.text for message in await make_environment(config, "train", 0).start()}
        heldout = {str(task(SMALL, "heldout", index)["question"]) for index in range(2000)}
        assert not shown & heldout

    async def test_a_wrong_answer_scores_below_success(self) -> None:
        end = await make_environment(CONFIG, "train", 3).step("no idea")
        assert (end.reward, end.done, end.success) == (0.0, True, False)

    def test_no_question_is_in_both_splits(self) -> None:
        train = {str(task(SMALL, "train", index)["question"]) for index in range(2000)}
        heldout = {str(task(SMALL, "heldout", index)["question"]) for index in range(2000)}
        assert len(train) > 50
        assert len(heldout) > 20
        assert not train & heldout

    def test_a_task_is_the_same_each_time(self) -> None:
        assert task(CONFIG, "train", 7) == task(CONFIG, "train", 7)
        assert task(CONFIG, "train", 7) != task(CONFIG, "train", 8)

    @pytest.mark.parametrize(
        "config",
        [
            ReasoningGym(dataset="no_such_dataset"),
            ReasoningGym(dataset_options={"no_such_option": 1}),
            ReasoningGym(dataset_options={"min_terms": 0}),
        ],
    )
    def test_a_dataset_that_does_not_exist_or_refuses_its_options_is_named(
        self, config: ReasoningGym
    ) -> None:
        with pytest.raises(UnknownDataset, match=config.dataset):
            task(config, "train", 0)
