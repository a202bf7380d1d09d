"""The engine's process imports vLLM while the generator that asks for it still does.

::

    generator ─┬─ imports vLLM ───────────────┬─ AsyncLLM ── asks for a process ─┐
               └─▶ fork server imports vLLM ──┴──────────────────────── forks ◀──┘

vLLM would start its engine's process anew (spawn), and only then would that import everything a
second time: one import after the other, which is most of what a generator takes to start. A fork
server has no threads and no CUDA context of its own, which is what makes forking it safe.
"""

import multiprocessing
from multiprocessing import forkserver

PRELOADED = ("vllm.v1.engine.core", "vllm.v1.worker.worker_base", "workers.weight_transfer")
"""What an engine process imports on every kind of device."""


def preload() -> None:
    """Start the fork server: it imports in the background and ends with this process.

    Called once the environment is what the engine's process has to see, and before vLLM is
    imported here.
    """
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    forkserver.ensure_running()


def use() -> None:
    """Make vLLM take its engine's process from the fork server. Imports vLLM."""
    from vllm.v1.engine import utils  # noqa: PLC0415  vLLM reads its environment on import

    utils.get_mp_context = lambda: multiprocessing.get_context("forkserver")
