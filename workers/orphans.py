"""No process outlives the one that started it."""

import multiprocessing
import os
import signal
import threading

WATCH = "ends-with-parent"


def end_with_parent() -> None:
    """Kill this process as soon as its parent is gone, however the parent ended.

    vLLM's engine process does not notice: when Ray kills a generator, its engine would stay, with
    its memory. Does nothing in a process that was not started by ``multiprocessing``, nor when it
    is called again.
    """
    parent = multiprocessing.parent_process()
    if parent is None or any(thread.name == WATCH for thread in threading.enumerate()):
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name=WATCH, daemon=True).start()
