"""How a run ends that cannot go on, and how an error of any process becomes its reason."""

from __future__ import annotations

from traceback import format_exception

from workers.rollout import EpisodeFailure


class RunFailed(Exception):
    """The run cannot go on. The message is one sentence for its page."""

    def __init__(self, reason: str, details: str = "", *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.details = details
        """A traceback from another process, for the log."""
        self.is_transient = is_transient
        """It need not happen again: a process was killed, or its machine is gone."""


class GeneratorDied(RunFailed):
    """A generator's process is gone, and another one takes its place."""


def environment_failed(item: EpisodeFailure) -> RunFailed:
    """An environment's error as the end of the run."""
    return RunFailed(f"The environment raised an error: {item.message}", item.traceback)


def failure(what: str, error: BaseException) -> RunFailed:
    """``what`` and the cause in one sentence, with the traceback as details.

    An error from another process wraps its cause: the cause is what a person should read. An error
    of a kind that need not happen again says so by ``is_transient``.
    """
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip() or type(cause).__name__
    details = str(error) if cause is not error else "".join(format_exception(error))
    is_transient = bool(getattr(cause, "is_transient", False))
    return RunFailed(f"{what}: {text.splitlines()[0][:300]}", details, is_transient=is_transient)
