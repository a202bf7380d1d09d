import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.models import MODELS, CacheShape, known_model
from workers.chat import Chat
from workers.environments import Message
from workers.models.folders import (
    ModelError,
    build,
    built_once,
    cache_shape,
    check_folder,
    model_folder,
)
from workers.models.recipes import MissingWeights, Recipe
from workers.models.tiny import untaught
from workers.models.tokenizer import character_tokenizer


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


def test_what_engines_keep_of_a_token_is_read_from_the_models_configuration(tmp_path: Path) -> None:
    def shape_of(**config: Any) -> CacheShape | None:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return cache_shape(tmp_path)

    plain = {"num_hidden_layers": 6, "num_attention_heads": 8, "hidden_size": 256}
    assert shape_of(**plain) == CacheShape(6, 8, 32)
    assert shape_of(text_config=plain | {"num_key_value_heads": 2}) == CacheShape(6, 2, 32)
    assert shape_of(**plain, head_dim=64, sliding_window=None) == CacheShape(6, 8, 64)
    assert shape_of(**plain, sliding_window=8, use_sliding_window=False) == CacheShape(6, 8, 32)
    others: list[dict[str, Any]] = [
        {"sliding_window": 8},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"kv_lora_rank": 4},
        {"num_attention_heads": "many"},
    ]
    for other in others:
        assert shape_of(**(plain | other)) is None
    assert shape_of() is None
    assert cache_shape(tmp_path / "nowhere") is None


def test_what_is_known_of_the_tiny_models_cache_is_what_is_built() -> None:
    config, known = untaught(Recipe(), character_tokenizer()).config, known_model("tiny")
    assert known is not None
    assert known.cache == CacheShape(
        config.num_hidden_layers, config.num_key_value_heads, config.head_dim
    )


@pytest.mark.slow
def test_smollm2_is_unpacked_into_a_folder_that_loads_and_answers(tmp_path: Path) -> None:
    folder = model_folder("smollm2-135m-instruct", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    known = known_model("smollm2-135m-instruct")
    assert known is not None
    assert cache_shape(folder) == known.cache
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    model.float()  # quicker on CPUs without bfloat16
    chat = Chat(tokenizer)
    prompt = torch.tensor([chat.open([Message("user", "What is the capital of France?")])])
    answer = model.generate(prompt, max_new_tokens=8, do_sample=False)[0, prompt.shape[1] :]
    assert "Paris" in chat.text(answer.tolist())
