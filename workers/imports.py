"""Imports that take seconds: vLLM's, torch's, transformers'."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """For imports: they make much and drop nothing, so the garbage collector would only look on.

    What was imported is left out of all later collections.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
