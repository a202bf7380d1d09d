"""The tiny model's tokenizer: a token per character, a few whole words, and the chat's marks."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

END = "<|end|>"
PAD = "<|pad|>"
UNKNOWN = "<|unknown|>"
ROLES = ("system", "user", "assistant", "tool")
WORDS = ("calc:", "answer:", "ok", "error")
"""Words that the environments say so often that each is one token."""
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
"""Printable ASCII and the line feed; anything else is ``UNKNOWN``."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def character_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, with its chat template; a header is one token, and so is the end of turn."""
    marks = [PAD, END, UNKNOWN, *(f"<|{role}|>" for role in ROLES)]
    vocabulary = {token: index for index, token in enumerate([*marks, *WORDS, *CHARACTERS])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    backend.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
