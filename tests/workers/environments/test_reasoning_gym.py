import sys

import pytest

from lagoon.environments.reasoning_gym import ReasoningGym
from workers.environments import demonstrate, make_environment
from workers.environments.reasoning_gym import MissingPackage, UnknownDataset, package, task

CONFIG = ReasoningGym(dataset="basic_arithmetic")


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

    async def test_a_wrong_answer_scores_below_success(self) -> None:
        end = await make_environment(CONFIG, "train", 3).step("no idea")
        assert (end.reward, end.done, end.success) == (0.0, True, False)

    def test_no_question_is_in_both_splits(self) -> None:
        small = ReasoningGym(
            dataset="chain_sum",
            dataset_options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        )
        train = {str(task(small, "train", index)["question"]) for index in range(2000)}
        heldout = {str(task(small, "heldout", index)["question"]) for index in range(2000)}
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
