"""Generators in the place of dead ones, for as long as the run gets on between their deaths.

::

    death ─▶ too many since the last step? ─▶ the attempt fails, and is started again as a whole
                  └─ no ─▶ what is left of it is ended ─▶ another one is started ─▶ a newcomer
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from workers.failures import RunFailed
from workers.handles import GeneratorHandle

Starter = Callable[[int], Awaitable[GeneratorHandle]]
"""Ends what is left of the generator of that number; returns another one when it is ready."""


class Replacements:
    """What ``Generators`` asks for another generator. Counts deaths without a step between them."""

    def __init__(self, start: Starter, limit: int, version: Callable[[], int]) -> None:
        """``limit``: replacements in a row that may come to nothing."""
        self._start, self._limit, self._version = start, limit, version
        self._in_a_row, self._seen = 0, version()

    async def __call__(self, generator: int) -> GeneratorHandle:
        """Another generator, which holds what the attempt began with.

        Raises ``RunFailed`` when too many have died since the last step, or it cannot start.
        """
        if self._version() > self._seen:
            self._in_a_row, self._seen = 0, self._version()
        if self._in_a_row >= self._limit:
            raise RunFailed(
                f"Generator {generator} died, and {self._in_a_row} generators that were started in "
                "the place of dead ones have not brought the run a step further "
                "(budget.max_restarts); weights that were saved before are safe.",
                is_transient=True,
            )
        self._in_a_row += 1
        return await self._start(generator)
