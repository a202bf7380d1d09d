"""Places that are taken, waited for, and made more or fewer meanwhile."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.actors.places import Places


async def moved() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


ACTS = st.tuples(st.sampled_from(["take", "leave", "give_up", "resize"]), st.integers(0, 5))


@settings(max_examples=50)
@given(st.integers(1, 4), st.lists(ACTS, max_size=30))
def test_never_more_than_there_are_begin_and_nobody_waits_for_a_free_one(
    number: int, acts: list[tuple[str, int]]
) -> None:
    async def play() -> None:
        places, room = Places(number), number
        begun: list[int] = []
        leave: dict[int, asyncio.Event] = {}
        tasks: dict[int, asyncio.Task[None]] = {}

        async def work(name: int) -> None:
            async with places:
                begun.append(name)
                await leave[name].wait()

        def inside() -> list[int]:
            return [name for name in begun if not tasks[name].done()]

        for at, (act, count) in enumerate(acts):
            before = len(inside())
            outside = [name for name in tasks if name not in begun and not tasks[name].done()]
            if act == "take":
                leave[at] = asyncio.Event()
                tasks[at] = asyncio.ensure_future(work(at))
            elif act == "leave" and inside():
                leave[inside()[count % before]].set()
            elif act == "give_up" and outside:
                tasks[outside[count % len(outside)]].cancel()
            elif act == "resize":
                room = count + 1
                places.resize(room)
            await moved()
            assert len(inside()) <= max(room, before)
            waiting = [name for name in tasks if name not in begun and not tasks[name].done()]
            assert not waiting or len(inside()) >= room
        assert begun == sorted(begun)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    asyncio.run(play())
