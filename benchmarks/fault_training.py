"""Faults of what a run works with: its disk, its tool, its prompts, its loss."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fault_cases import Case, Found
from benchmarks.fault_checks import events_of
from benchmarks.fault_disk import (
    CannotMount,
    fill,
    make_room,
    small_disk,
    unfinished,
    whole,
)
from benchmarks.fault_stage import Run, Stage, config
from cli.processes import wait_until
from lagoon.metrics import TRUNCATED
from lagoon.status import RunStatus

NOT_SAVED, SAVED_AGAIN = "could not be saved", "checkpoints work again"
NO_ROOM = "No space left on device"
SETTLE_SECONDS = 10.0
OnDisk = Callable[[Stage, str, Path, random.Random], Found]


def _on_small_disk(name: str, max_steps: int, play: OnDisk) -> Case:
    """A case whose run has a small disk for its checkpoints, which is full after the first ones."""

    def played(stage: Stage, order: random.Random) -> Found:
        run_id = stage.start(
            name,
            config(order.randrange(1000), budget={"max_steps": max_steps}, checkpoint={"keep": 1}),
        )
        try:
            with small_disk(_checkpoints(stage, run_id)) as place:
                stage.until(run_id, lambda run: len(run["checkpoints"]) > 0)
                found = play(stage, run_id, place, order)
                ended = stage.ended(run_id)
                found.wrong += stage.faults(ended)
                found.expect(not unfinished(place), f"left on the disk: {unfinished(place)}")
                found.expect(len(ended["attempts"]) == 1, "it was started again")
                return found
        except CannotMount as error:
            stage.patiently("POST", f"/runs/{run_id}/stop")
            stage.left(stage.ended(run_id))
            return Found("", not_run=f"nothing can be mounted here: {error}")

    return Case(name, played)


def _checkpoints(stage: Stage, run_id: str) -> Path:
    return stage.home.root / "attempts" / f"{run_id}-a1" / "checkpoints"


def _full_for_a_while(stage: Stage, run_id: str, place: Path, order: random.Random) -> Found:
    fill(place)
    told = stage.until(run_id, lambda _: _has_said(stage, run_id, NOT_SAVED, NO_ROOM))
    found = Found("")
    found.expect_soon(told, "the page did not say that a checkpoint was not saved")
    _expect_whole(stage, run_id, place, found)
    step = stage.read(run_id)["step"]
    onward = stage.until(run_id, lambda run: run["step"] > step + order.randint(1, 4))
    found.expect(onward is not None, "it did not train on")
    make_room(place)
    ended = stage.ended(run_id)
    found.said = f"{ended['status']}; on the way: {_first(stage, run_id, NOT_SAVED)}"
    found.expect(ended["status"] == RunStatus.FINISHED, f"{ended['status']}: {ended['reason']}")
    found.expect(_has_said(stage, run_id, SAVED_AGAIN), "no checkpoint was saved afterwards")
    return found


def _full_to_the_end(stage: Stage, run_id: str, place: Path, order: random.Random) -> Found:
    fill(place)
    ended = stage.ended(run_id)
    found = Found(f"{ended['status']}: {ended['reason']}")
    found.expect(ended["status"] == RunStatus.FAILED, "it ended as if its weights had been saved")
    for words in (NOT_SAVED, NO_ROOM):
        found.expect(words in ended["reason"], f"its reason does not say {words!r}")
    _expect_whole(stage, run_id, place, found)
    return found


def _expect_whole(stage: Stage, run_id: str, place: Path, found: Found) -> None:
    """Every checkpoint that the page shows is on the disk as it was written, and there is one."""

    def shown() -> set[str]:
        return {Path(item["path"]).name for item in stage.read(run_id)["checkpoints"]}

    is_whole = wait_until(lambda: bool(shown()) and shown() <= whole(place).keys(), SETTLE_SECONDS)
    found.expect(is_whole, f"shown: {sorted(shown())}, whole on the disk: {sorted(whole(place))}")


def _hung_tool(stage: Stage, order: random.Random) -> Found:
    waits = {"mean_wait_seconds": 0.5, "wait_sigma": 1.0}
    given = config(
        order.randrange(1000),
        environment=waits,
        rollout={"tool_timeout_seconds": 1.0},
        budget={"max_steps": 6},
    )
    ended = stage.ended(stage.start("a tool that hangs", given))
    told = _episodes(stage, ended)
    cut = [event for event in told if any(_is_hung(turn) for turn in event["turns"])]
    found = Found(f"{ended['status']}; {len(cut)} of {len(told)} shown episodes ended by the limit")
    found.expect(ended["status"] == RunStatus.FINISHED, f"{ended['status']}: {ended['reason']}")
    found.expect(0 < len(cut) < len(told), "not some of the episodes, and only these, were ended")
    found.wrong += stage.faults(ended)
    return found


def _is_hung(turn: dict[str, Any]) -> bool:
    return "no answer within" in (turn["error"] or "")


def _long_prompts(stage: Stage, order: random.Random) -> Found:
    """Prompts of 24 to 29 tokens where 28 are all that an episode may have."""
    tasks = {"num_operations": 8, "max_operand": 99, "max_turns": 9}
    given = config(
        order.randrange(1000),
        environment=tasks,
        model={"max_length_tokens": 28},
        budget={"max_steps": 6},
    )
    ended = stage.ended(stage.start("prompts that are too long", given))
    points = [p for e in _events(stage, ended) if e["type"] == "step" for p in e["points"]]
    cut = [point["value"] for point in points if point["name"] == TRUNCATED.name]
    told = _episodes(stage, ended)
    empty = [event["split"] for event in told if event["num_tokens"] == 0]
    found = Found(
        f"{ended['status']}; {len(empty)} of {len(told)} shown episodes had no room for a token, "
        f"{empty.count('train')} of them trained on"
    )
    found.expect(ended["status"] == RunStatus.FINISHED, f"{ended['status']}: {ended['reason']}")
    found.expect(cut and min(cut) > 0.9, f"shares of episodes that were cut: {cut}")
    some = 0 < len(empty) < len(told)
    found.expect(some, "not some of the prompts, and only these, were too long")
    found.expect("train" not in empty, "episodes without a token were trained on")
    found.wrong += stage.faults(ended)
    return found


def _no_number(stage: Stage, order: random.Random) -> Found:
    """The weighted divergence overflows as soon as the policy has moved."""
    given = config(
        order.randrange(1000),
        method={"kl_coefficient": 1e38},
        checkpoint={"every_steps": 1},
        budget={"max_steps": 30},
    )
    run_id = stage.start("a loss that is no number", given)
    ended = stage.ended(run_id)
    found = Found(f"{ended['status']}: {ended['reason']}")
    found.expect(ended["status"] == RunStatus.FAILED, "it went on with it")
    named = any(words in ended["reason"] for words in (" is nan", " is inf"))
    found.expect(named and "refused" in ended["reason"], "its reason does not name the value")
    found.expect(len(ended["attempts"]) == 1, "it was started again, to fail again")
    newest = max((item["step"] for item in ended["checkpoints"]), default=0)
    found.expect(newest == ended["step"] > 0, f"step {ended['step']}, newest weights of {newest}")
    found.wrong += stage.faults(ended)
    return found


def _events(stage: Stage, run: Run) -> list[dict[str, Any]]:
    return list(events_of(stage.home, f"{run['id']}-a1"))


def _episodes(stage: Stage, run: Run) -> list[dict[str, Any]]:
    """Those that the run's page shows."""
    return [event for event in _events(stage, run) if event["type"] == "trajectory"]


def _has_said(stage: Stage, run_id: str, *words: str) -> bool:
    return any(all(word in reason for word in words) for reason in stage.said(run_id))


def _first(stage: Stage, run_id: str, words: str) -> str:
    return next((reason for reason in stage.said(run_id) if words in reason), "nothing was said")


TRAINING = (
    _on_small_disk("full disk for checkpoints, for a while", 24, _full_for_a_while),
    _on_small_disk("full disk for checkpoints, to the end", 12, _full_to_the_end),
    Case("a tool that hangs", _hung_tool),
    Case("prompts that are too long", _long_prompts),
    Case("a loss that is no number", _no_number),
)
