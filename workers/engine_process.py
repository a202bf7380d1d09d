"""An engine's process imports vLLM while the generator that asks for it still does. On CPU only.

::

    generator ─┬─ imports vLLM ───────────────┬─ AsyncLLM ── asks for a process ─┐
               └─▶ fork server imports vLLM ──┴──────────────────────── forks ◀──┘

vLLM starts its engine's process anew (spawn), and only then would that import everything a second
time: one import after the other, which is most of what a generator takes to start. Forking a
generator would not do, because Ray's threads are in it. A fork server runs nothing but imports.
With a GPU vLLM's own way is kept: a process that is forked must not have touched the device.
"""

import gc
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from multiprocessing import forkserver, process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import psutil

from workers.imports import uncollected
from workers.orphans import end_with_parent

SOCKETS = "engine"
PRELOADED = (
    "workers.lean_imports",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "workers.weight_transfer",
)
"""What every engine's process imports, in order."""


class ForkFailed(RuntimeError):
    """There is no server to fork an engine's process from."""


def preload(folder: Path) -> None:
    """Start the fork server: it imports in the background, and ends with this process.

    To be called before vLLM is imported here, with the environment that imports have to see: a
    second call changes nothing. The server's socket is made in ``folder``.
    """
    settings = process.current_process()._config  # type: ignore[attr-defined]  # the only way in
    if "tempdir" not in settings:
        _remove_left_over(folder)
        settings["tempdir"] = tempfile.mkdtemp(prefix=f"{SOCKETS}-{os.getpid()}-", dir=folder)
    # vLLM puts it first for the process that it spawns, which is too late for a fork server.
    if (openmp := _openmp_library()) and "libgomp" not in os.environ.get("LD_PRELOAD", ""):
        os.environ["LD_PRELOAD"] = ":".join(filter(None, [os.environ.get("LD_PRELOAD"), openmp]))
    multiprocessing.set_forkserver_preload(list(PRELOADED))
    forkserver.ensure_running()
    with uncollected():
        import workers.lean_imports  # noqa: F401, PLC0415  here, too, and before vLLM


def _remove_left_over(folder: Path) -> None:
    """Remove the socket folders of generators that are gone: Ray kills them."""
    for old in folder.glob(f"{SOCKETS}-*"):
        _, pid, *_ = old.name.split("-")
        if not (pid.isdecimal() and psutil.pid_exists(int(pid))):
            shutil.rmtree(old, ignore_errors=True)


def fork_engines() -> None:
    """Let vLLM fork its engines' processes from the fork server. Imports vLLM."""
    from vllm.v1.engine import utils  # noqa: PLC0415  vLLM reads its environment on import

    utils.get_mp_context = _Forks


class _Forks(ForkServerContext):
    """The multiprocessing context of the fork server, with today's environment for its processes.

    vLLM changes the environment before it starts a process; a spawned one would have inherited it.
    """

    def Process(  # type: ignore[override]  # vLLM names all that it gives
        self, *, target: Callable[..., None], name: str, kwargs: Mapping[str, Any]
    ) -> ForkServerProcess:
        given = (dict(os.environ), target, kwargs)
        return _Forked(target=_with_environment, name=name, args=given)


class _Forked(ForkServerProcess):
    """A process that says what it means when its server is gone."""

    def start(self) -> None:
        """Raises ``ForkFailed`` when the server has ended: an import of its own failed."""
        try:
            super().start()
        except (EOFError, ConnectionError) as error:
            raise ForkFailed(
                "the engine's process could not be started, because what it imports could not be "
                "imported; the reason is in the generator's log"
            ) from error


def _with_environment(
    environment: Mapping[str, str], target: Callable[..., None], kwargs: Mapping[str, Any]
) -> None:
    end_with_parent()  # before the model is loaded: a generator may be killed meanwhile, too
    gc.freeze()  # what the server has imported stays, in memory that all its processes share
    gc.enable()
    os.environ.update(environment)
    target(**kwargs)


def _openmp_library() -> str | None:
    """torch's own OpenMP library, in either of the places where its wheels have it."""
    torch = find_spec("torch")
    roots = [Path(folder) for folder in (torch.submodule_search_locations or ())] if torch else []
    folders = [folder for root in roots for folder in (root / "lib", root.parent / "torch.libs")]
    found = [file for folder in folders for file in sorted(folder.glob("libgomp*.so*"))]
    return str(found[0]) if found else None
