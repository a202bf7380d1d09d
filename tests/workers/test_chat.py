from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoTokenizer

from lagoon.config import RunConfig
from lagoon.environments.calculator import Calculator
from lagoon.environments.sudoku4 import Sudoku4
from workers.chat import Chat, TemplateError
from workers.environments import Message, demonstrate
from workers.models.smollm2 import weights_file
from workers.models.teaching import spoken
from workers.models.tokenizer import character_tokenizer


@cache
def smollm2_tokenizer() -> Any:
    file = weights_file()
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


ROOT = Path(__file__).parents[2]
TOKENIZERS = pytest.mark.parametrize(
    "make_tokenizer", [character_tokenizer, smollm2_tokenizer], ids=["tiny", "smollm2"]
)
CONVERSATION = demonstrate(Calculator(), "train", 0)


def rendered(tokenizer: Any, messages: list[Message]) -> str:
    """The whole conversation as the template writes it in one go."""
    spoken = [{"role": message.role, "content": message.text} for message in messages]
    text: str = tokenizer.apply_chat_template(spoken, tokenize=False)
    return text


@TOKENIZERS
@pytest.mark.parametrize("is_cut", [False, True], ids=["ended", "cut"])
def test_a_conversation_grown_turn_by_turn_reads_like_one_rendered_at_once(
    make_tokenizer: Callable[[], Any], is_cut: bool
) -> None:
    tokenizer = make_tokenizer()
    chat = Chat(tokenizer)
    tokens = chat.open(CONVERSATION[:1])
    for turn, answer in zip(CONVERSATION[1:-1:2], CONVERSATION[2::2], strict=True):
        said = chat.said(turn.text)
        sampled = said[:-1] if is_cut else said
        tokens += sampled + chat.observe(sampled, [answer])
    tokens += chat.said(CONVERSATION[-1].text)
    whole = rendered(tokenizer, CONVERSATION)
    assert tokenizer.decode(tokens) == whole.rstrip("\n")


@TOKENIZERS
def test_a_sampled_turn_is_read_without_its_end_and_is_never_encoded_again(
    make_tokenizer: Callable[[], Any],
) -> None:
    chat = Chat(make_tokenizer())
    said = chat.said("calc:7*2")
    assert said[-1] in chat.stop_token_ids
    assert chat.text(said) == chat.text(said[:-1]) == "calc:7*2"
    split_oddly = [*chat.said("ca")[:-1], *chat.said("lc")]
    assert chat.text(split_oddly) == "calc"
    assert chat.observe(split_oddly, [Message("tool", "14")]) == chat.observe(
        said, [Message("tool", "14")]
    )


@TOKENIZERS
def test_the_end_of_a_cut_turn_is_added(make_tokenizer: Callable[[], Any]) -> None:
    chat = Chat(make_tokenizer())
    said = chat.said("calc:7*2")
    answer = [Message("tool", "14")]
    assert chat.observe(said[:-1], answer) == [said[-1], *chat.observe(said, answer)]
    assert chat.observe([], answer) == chat.observe(said[:-1], answer)


def test_the_tiny_tokenizer_spends_few_tokens() -> None:
    chat = Chat(character_tokenizer())
    assert len(chat.said("calc:13*2")) == 6
    assert len(chat.said("b3")) == 3
    for config in (Calculator(), Sudoku4()):
        tokens, _ = spoken(chat, demonstrate(config, "heldout", 0))
        assert len(tokens) < 128


def test_the_tiny_tokenizer_survives_saving_and_loading(tmp_path: Any) -> None:
    tokenizer = character_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = rendered(tokenizer, CONVERSATION)
    assert rendered(loaded, CONVERSATION) == text
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.eos_token_id == tokenizer.eos_token_id == Chat(loaded).stop_token_ids[0]


def test_a_tokenizer_without_a_template_is_refused() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(TemplateError, match="no chat template"):
        Chat(tokenizer)


def with_template(template: str) -> Any:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


TURN = "'<|' + m['role'] + '|>' + m['content'] + '<|end|>'"


def test_the_user_speaks_for_the_tool_where_the_template_knows_no_tool() -> None:
    template = (
        "{% for m in messages %}{% if m['role'] == 'tool' %}"
        "{{ raise_exception('no such role') }}{% endif %}{{ " + TURN + " }}{% endfor %}"
    )
    chat = Chat(with_template(template))
    heard = chat.observe(chat.said("x"), [Message("tool", "14")])
    assert chat.text(heard) == "14"
    assert heard[0] == with_template(template).convert_tokens_to_ids("<|user|>")


def test_a_template_that_hides_earlier_turns_is_refused() -> None:
    template = (
        "{% for m in messages %}{% if m['role'] != 'assistant' %}{{ " + TURN + " }}"
        "{% endif %}{% endfor %}"
    )
    with pytest.raises(TemplateError, match="hides"):
        Chat(with_template(template))


def test_the_prompts_of_the_real_models_preset_leave_room_for_an_answer() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym needs a C compiler to install")
    file = ROOT / "presets" / "grpo-smollm2-reasoning-gym.yaml"
    config = RunConfig.model_validate(yaml.safe_load(file.read_text()))
    chat = Chat(smollm2_tokenizer())
    room = config.model.max_length_tokens - config.environment.max_tokens_per_turn
    longest = 0
    for index in range(400):
        *prompt, answer = demonstrate(config.environment, "train", index)
        longest = max(longest, len(chat.open(prompt)))
        assert len(chat.said(answer.text)) <= config.environment.max_tokens_per_turn
    assert 100 < longest <= room
