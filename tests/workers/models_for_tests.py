"""A random Qwen3 model and a character tokenizer, small enough to build in a second."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-*/=?. \n"
SPECIAL = ["<pad>", "<start>", "<end>"]
VOCABULARY = SPECIAL + list(CHARACTERS)
END = VOCABULARY.index("<end>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<start>{{ m['role'][0] }} {{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<start>a {% endif %}"
)


def build_model(folder: Path, *, seed: int = 0, tied: bool = True, layers: int = 2) -> Path:
    """Save a model with random weights, spread enough for its log-probabilities to differ."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=END,
        initializer_range=0.2,
    )
    Qwen3ForCausalLM(config).float().save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(VOCABULARY)}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=["<start>"],
        chat_template=CHAT_TEMPLATE,
    )
    fast.save_pretrained(folder)
    return folder
