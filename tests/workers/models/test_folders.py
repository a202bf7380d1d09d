import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.models import MODELS, known_model
from workers.chat import Chat
from workers.environments import Message
from workers.models.folders import ModelError, build, built_once, check_folder, model_folder
from workers.models.recipes import MissingWeights


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


COMPLETE = ("config.json", "tokenizer.json", "model.safetensors")


def test_a_complete_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "mine", *COMPLETE)
    assert model_folder(str(folder), tmp_path) == folder


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("config.json", "configuration"),
        ("tokenizer.json", "tokenizer"),
        ("model.safetensors", "weights"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_in_one_sentence(
    tmp_path: Path, missing: str, what: str
) -> None:
    folder = folder_with(tmp_path / "mine", *(name for name in COMPLETE if name != missing))
    with pytest.raises(ModelError, match=f"has no {what}") as raised:
        check_folder(folder)
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_name_that_means_nothing_is_answered_with_the_names_that_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tiny, smollm2-135m-instruct"):
        model_folder("no-such-model", tmp_path)
    with pytest.raises(ModelError, match="tiny, smollm2-135m-instruct"):
        build("no-such-model", tmp_path)


def test_a_hub_model_that_cannot_be_fetched_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="could not be fetched from the hub") as raised:
        model_folder("some-owner/some-model", tmp_path)
    assert "\n" not in str(raised.value)


def test_a_model_is_built_once_and_says_so_as_it_goes(tmp_path: Path) -> None:
    built: list[Path] = []
    lines: list[str] = []

    def builder(folder: Path, progress: Any) -> dict[str, Any]:
        built.append(folder)
        progress("half done")
        (folder / "config.json").write_text("{}")
        return {"seconds": 1}

    first = built_once(tmp_path / "models" / "x", "abc", builder, lines.append)
    again = built_once(tmp_path / "models" / "x", "abc", builder, lines.append)
    changed = built_once(tmp_path / "models" / "x", "def", builder, lines.append)
    assert first == again != changed
    assert len(built) == 2
    assert "half done" in lines
    assert json.loads((first / "build.json").read_text()) == {"seconds": 1}
    assert (first / "config.json").exists()


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def builder(folder: Path, progress: Any) -> dict[str, Any]:
        (folder / "half").write_text("")
        raise MissingWeights("the weights are gone")

    with pytest.raises(ModelError, match="the weights are gone"):
        built_once(tmp_path, "abc", builder, lambda line: None)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".building-killed").mkdir()
    built_once(tmp_path, "abc", lambda folder, progress: {}, lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "abc"]


def test_the_catalogue_names_every_model_that_can_be_built() -> None:
    assert [model.name for model in MODELS] == ["tiny", "smollm2-135m-instruct"]
    tiny = known_model("tiny")
    assert tiny is not None
    assert replace(tiny, name="x").title == tiny.title
    assert known_model("nothing") is None


@pytest.mark.slow
def test_smollm2_is_unpacked_into_a_folder_that_loads_and_answers(tmp_path: Path) -> None:
    folder = model_folder("smollm2-135m-instruct", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    model.float()  # quicker on CPUs without bfloat16
    chat = Chat(tokenizer)
    prompt = torch.tensor([chat.open([Message("user", "What is the capital of France?")])])
    answer = model.generate(prompt, max_new_tokens=8, do_sample=False)[0, prompt.shape[1] :]
    assert "Paris" in chat.text(answer.tolist())
