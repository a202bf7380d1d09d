"""A fork begins with its parent's checkpoint, whatever the parent does meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.storage import beginnings, retention
from lagoon.checkpoints import verified
from tests.backend.api import Api, phase, read_run
from tests.backend.test_resuming import next_driver, saved, send, whole


async def training(api: Api) -> tuple[httpx.AsyncClient, str, Path, dict[str, Any]]:
    """A user, their run that trains, the checkpoint it has saved, and what a fork is made of."""
    ada = await api.user()
    run_id, driver = await api.started(ada)
    path = whole(api.settings.home / "attempts" / f"{run_id}-a1" / "checkpoints" / "step-4", 4)
    await send(api, driver, run_id, phase("running"), saved(path, 4))
    [checkpoint] = (await read_run(ada, run_id))["checkpoints"]
    return ada, run_id, path, {"checkpoint_id": checkpoint["id"], "name": "further"}


async def bytes_of(user: httpx.AsyncClient, run_id: str) -> int:
    runs = (await user.get("/storage")).json()["runs"]
    return next(int(run["checkpoint_bytes"]) for run in runs if run["run_id"] == run_id)


async def test_a_parent_that_still_trains_may_remove_the_checkpoint_that_its_fork_waits_for(
    api: Api,
) -> None:
    api.nodes = [("n1", 4, 0)]
    ada, run_id, path, body = await training(api)
    fork = (await ada.post(f"/runs/{run_id}/fork", json=body)).json()
    assert await bytes_of(ada, fork["id"]) == 0  # it is the parent's, so far
    shutil.rmtree(path)
    await retention.turn(api.context)
    driver, told = await next_driver(api, fork["id"], 1)
    [begins] = told["checkpoints"]
    assert told["owns_checkpoints"] is False
    assert verified(Path(begins), method="grpo", model="tiny").step == 4
    assert await bytes_of(ada, fork["id"]) > 0
    # Once it has saved its own it never begins with that one again.
    await send(api, driver, fork["id"], phase("running"), saved("/w/5", 5))
    await retention.turn(api.context)
    assert not Path(begins).exists()


async def test_a_fork_that_its_parent_is_too_quick_for_is_refused_and_leaves_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, run_id, path, body = await training(api)
    link: Callable[[Path, Path], None] = beginnings._link

    def too_late(source: Path, target: Path) -> None:
        (path / "model.safetensors").unlink()
        link(source, target)

    monkeypatch.setattr(beginnings, "_link", too_late)
    answer = await ada.post(f"/runs/{run_id}/fork", json=body)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("checkpoint-removed")
    assert [run["id"] for run in (await ada.get("/runs")).json()["items"]] == [run_id]
    folders = [each.name for each in (api.settings.home / "attempts").iterdir()]
    assert folders == [f"{run_id}-a1"]


async def test_a_beginning_without_a_fork_is_removed_when_none_is_being_made(api: Api) -> None:
    lost = api.settings.home / "attempts" / "rlost-a1" / "checkpoints" / beginnings.FOLDER
    lost.mkdir(parents=True)
    await beginnings.clear(api.context)  # by the test's clock it is years old
    assert not lost.exists()


async def test_weights_are_copied_where_they_cannot_be_linked(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("links are not supported")

    monkeypatch.setattr(beginnings.os, "link", refused)
    ada, run_id, _, body = await training(api)
    fork = (await ada.post(f"/runs/{run_id}/fork", json=body)).json()
    begins = api.settings.home / "attempts" / f"{fork['id']}-a1" / "checkpoints" / "beginning"
    assert verified(begins, method="grpo", model="tiny").step == 4
