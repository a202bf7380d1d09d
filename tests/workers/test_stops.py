import asyncio
import threading

import pytest

from workers.stops import PATIENCE_SECONDS, Patience, StopSwitch, in_thread


def test_a_request_made_before_anybody_listens_is_kept() -> None:
    heard: list[str] = []
    switch = StopSwitch()
    switch.request()
    switch.fence()
    switch.connect(lambda: heard.append("stop"), lambda: heard.append("fence"))
    assert heard == ["stop", "fence"]
    assert switch.is_fenced


def test_a_request_and_a_fence_are_told_apart() -> None:
    heard: list[str] = []
    switch = StopSwitch()
    switch.connect(lambda: heard.append("stop"), lambda: heard.append("fence"))
    switch.request()
    assert heard == ["stop"]
    assert not switch.is_fenced
    switch.fence()
    switch.disconnect()
    switch.request()
    assert heard == ["stop", "fence"]


class Hand:
    """A stopwatch that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_signal_long_after_a_request_means_at_once_and_an_earlier_one_does_not() -> None:
    stop, abandon, hand = asyncio.Event(), asyncio.Event(), Hand()
    patience = Patience(stop, abandon, hand)
    patience.ask()
    assert stop.is_set()
    hand.now = PATIENCE_SECONDS - 1
    patience.ask_again()
    assert not abandon.is_set()
    hand.now = PATIENCE_SECONDS
    patience.ask()  # the platform repeats itself with every answer
    assert not abandon.is_set()
    patience.ask_again()
    assert abandon.is_set()


async def test_a_first_signal_is_a_request_like_any_other() -> None:
    stop, abandon, hand = asyncio.Event(), asyncio.Event(), Hand()
    patience = Patience(stop, abandon, hand)
    hand.now = 1000.0
    patience.ask_again()
    assert stop.is_set()
    assert not abandon.is_set()


async def test_work_in_a_thread_gives_its_result_or_its_error() -> None:
    assert await in_thread(pow, 2, 5) == 32
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


async def test_nobody_waits_for_a_thread_whose_caller_was_cancelled() -> None:
    release, ended = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(30)
        ended.set()

    task = asyncio.ensure_future(in_thread(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    release.set()
    assert ended.wait(5)
