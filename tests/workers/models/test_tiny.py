import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.environments.calculator import Calculator
from workers.chat import Chat
from workers.environments import demonstrate
from workers.models.recipes import Recipe, Schedule, Stage
from workers.models.teaching import spoken
from workers.models.tiny import build_tiny
from workers.models.tokenizer import character_tokenizer

EASY = Calculator(num_operations=1, max_operand=3, max_turns=2, mean_wait_seconds=0)
SHORT = Recipe(schedule=Schedule((Stage(4, ((EASY,),)),), 8, warmup_steps=1), num_eval_tasks=8)


def ignore(line: str) -> None:
    """Progress that nobody reads."""


def built(recipe: Recipe, folder: Path) -> dict[str, torch.Tensor]:
    build_tiny(recipe, folder, ignore)
    model = AutoModelForCausalLM.from_pretrained(folder)
    return dict(model.state_dict())


def test_one_seed_gives_one_model_bit_for_bit_and_another_seed_another(tmp_path: Path) -> None:
    first = built(SHORT, tmp_path / "first")
    torch.manual_seed(123)  # the state of the process's own generator must not matter
    again = built(SHORT, tmp_path / "again")
    other = built(replace(SHORT, seed=SHORT.seed + 1), tmp_path / "other")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_build_leaves_the_processs_random_state_and_threads_alone(tmp_path: Path) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    build_tiny(SHORT, tmp_path, ignore)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_the_folder_holds_a_float32_qwen3_with_its_tokenizer(tmp_path: Path) -> None:
    build_tiny(SHORT, tmp_path, ignore)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    assert 0.5e6 < model.num_parameters() < 1.5e6
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert Chat(tokenizer).stop_token_ids == [model.config.eos_token_id]


def test_the_report_says_how_good_the_model_is(tmp_path: Path) -> None:
    lines: list[str] = []
    report = build_tiny(SHORT, tmp_path, lines.append)
    assert set(report["levels"]) == {"calculator", "sudoku4"}
    for measured in report["levels"].values():
        assert measured["num_tasks"] == 8
        assert 0 <= measured["greedy"] <= 1
        assert 0 <= measured["sampled"] <= 1
    assert json.loads(json.dumps(report)) == report
    assert any("step 4 of 4" in line for line in lines)


def test_the_report_holds_the_level_after_each_earlier_stage(tmp_path: Path) -> None:
    stages = tuple(Stage(2, ((EASY,),)) for _ in range(3))
    recipe = replace(SHORT, schedule=Schedule(stages, 8), num_early_tasks=4)
    earlier = build_tiny(recipe, tmp_path, ignore)["levels_after_earlier_stages"]
    assert [found["sudoku4"]["num_tasks"] for found in earlier] == [4, 4]


def test_only_the_assistants_turns_are_taught() -> None:
    chat = Chat(character_tokenizer())
    messages = demonstrate(Calculator(), "train", 0)
    tokens, mask = spoken(chat, messages)
    taught = [token for token, is_taught in zip(tokens, mask, strict=True) if is_taught]
    said = [message.text for message in messages if message.role == "assistant"]
    assert taught == [token for text in said for token in chat.said(text)]


def test_lessons_lower_the_loss_far_below_that_of_guessing(tmp_path: Path) -> None:
    guessing = math.log(len(character_tokenizer()))

    def taught(num_steps: int, folder: Path) -> dict[str, Any]:
        schedule = Schedule((Stage(num_steps, ((EASY,),), last_share=0.1),))
        return build_tiny(replace(SHORT, schedule=schedule, num_eval_tasks=4), folder, ignore)

    before, after = taught(1, tmp_path / "a"), taught(60, tmp_path / "b")
    assert before["loss"] > 0.7 * guessing
    assert after["loss"] < 0.2 * guessing


def test_a_changed_recipe_has_another_fingerprint() -> None:
    assert Recipe().fingerprint == Recipe().fingerprint
    assert Recipe().fingerprint != Recipe(seed=Recipe().seed + 1).fingerprint
    shorter = Schedule(Recipe().schedule.stages[:1])
    assert Recipe().fingerprint != replace(Recipe(), schedule=shorter).fingerprint


def test_the_schedule_warms_up_and_every_stage_has_its_own_shares() -> None:
    easy, hard = ((EASY,),), ((Calculator(),),)
    stages = (Stage(100, hard, first_share=1.0, last_share=0.5), Stage(10, easy, 0.4, 0.2))
    schedule = Schedule(stages, warmup_steps=10)
    assert schedule.num_steps == 110
    assert schedule.at(0) == (stages[0], pytest.approx(0.1))
    assert schedule.at(50) == (stages[0], pytest.approx(0.75))
    assert schedule.at(100) == (stages[1], pytest.approx(0.4))
    assert schedule.at(105) == (stages[1], pytest.approx(0.3))
    with pytest.raises(IndexError):
        schedule.at(110)
