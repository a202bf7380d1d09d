"""Places for work that goes on side by side; how many may change while some are taken."""

from __future__ import annotations

import asyncio
from collections import deque


class Places:
    """``async with places:`` waits for a place, in the order of the asking."""

    def __init__(self, number: int) -> None:
        self._number, self._taken = number, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, number: int) -> None:
        """From now on there are so many. Who has a place keeps it until done."""
        self._number = number
        self._hand_out()

    async def __aenter__(self) -> None:
        if self._taken < self._number and not self._waiting:
            self._taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # it was given one at the last moment
            else:
                self._waiting.remove(place)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._taken -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._taken < self._number:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
