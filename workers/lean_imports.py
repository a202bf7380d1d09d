"""The fork server's first import: what makes vLLM's own imports shorter. For CPU only.

vLLM patches torch's compiler when it is imported, and loads the compiler for that, which an eager
engine never asks. The patches live in one module of vLLM's; an empty one takes its place.
"""

import gc
import os
import sys
from types import ModuleType

PATCHES = "vllm.env_override"

gc.disable()  # imports drop nothing; a forked process turns it on again


def _nothing_to_patch() -> None:
    """Stands for the one function of the module that other modules of vLLM import."""


if PATCHES not in sys.modules:
    # What the module sets apart from its patches: no pool of compiler processes.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    empty = ModuleType(PATCHES, "Left out: nothing is compiled on CPU.")
    empty._apply_constrain_to_fx_strides_patch = _nothing_to_patch  # type: ignore[attr-defined]
    sys.modules[PATCHES] = empty
