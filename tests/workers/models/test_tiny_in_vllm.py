"""The built folder in the real engine: its own tokenizer, and the same numbers as torch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.environments.calculator import Calculator
from workers.chat import Chat
from workers.engine import VLLMEngine
from workers.engine_settings import EngineSettings
from workers.environments import demonstrate
from workers.models.recipes import Recipe, Schedule, Stage
from workers.models.tiny import build_tiny

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SETTINGS = EngineSettings(
    dtype="float32",
    max_length_tokens=128,
    max_concurrent=8,
    kv_cache_gib=0.25,
    threads=1,
    on_cpu=True,
    seed=0,
    keep_master=False,
)


async def test_the_engine_gives_the_logprobs_of_torch(tmp_path: Path) -> None:
    lessons = ((Calculator(num_operations=1, max_turns=2),),)
    recipe = replace(Recipe(), schedule=Schedule((Stage(8, lessons),), 8), num_eval_tasks=2)
    build_tiny(recipe, tmp_path, lambda line: None)
    chat = Chat(AutoTokenizer.from_pretrained(tmp_path))
    prompt = chat.open(demonstrate(Calculator(), "train", 0)[:1])
    engine = await VLLMEngine.start(tmp_path, SETTINGS)
    try:
        sampled = await engine.sample(
            prompt, max_tokens=24, temperature=1.0, stop_token_ids=chat.stop_token_ids
        )
    finally:
        engine.shutdown()
    tokens = torch.tensor([prompt + sampled.token_ids])
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        table = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    expected = table.gather(1, tokens[0, len(prompt) :, None])[:, 0].numpy()
    assert np.abs(np.array(sampled.logprobs) - expected).max() < 1e-5
    assert sampled.finish == "length" or sampled.token_ids[-1] in chat.stop_token_ids
