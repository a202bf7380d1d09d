"""Deleting a run takes its files with it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from backend import maintenance
from backend.runs import files
from tests.backend.api import Api, make_run, read_run


def leave(home: Path, attempt_id: str, text: str = "weights") -> Path:
    """An attempt's folder with one file in it."""
    folder = home / "attempts" / attempt_id
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model").write_text(text)
    return folder


async def ended_run(user: httpx.AsyncClient, **body: str) -> str:
    run_id: str = (await make_run(user, **body))["id"]
    assert (await user.post(f"/runs/{run_id}/stop")).status_code == 202
    return run_id


async def test_deleting_a_run_removes_its_folder_and_no_other(api: Api) -> None:
    ada = await api.user()
    home = api.settings.home
    run_id, other_id = await ended_run(ada), await ended_run(ada)
    folder, other = leave(home, f"{run_id}-a1"), leave(home, f"{other_id}-a1")
    answer = await ada.delete(f"/runs/{run_id}")
    assert answer.status_code == 200
    assert answer.json() == {"freed_bytes": len("weights"), "left_behind": []}
    assert not folder.exists()
    assert (other / "checkpoints" / "model").read_text() == "weights"
    assert list((home / "attempts" / ".deleted").iterdir()) == []


async def test_a_run_that_left_no_files_is_deleted_all_the_same(api: Api) -> None:
    ada = await api.user()
    answer = await ada.delete(f"/runs/{await ended_run(ada)}")
    assert answer.json() == {"freed_bytes": 0, "left_behind": []}


async def test_an_active_run_keeps_its_files(api: Api) -> None:
    ada = await api.user()
    run_id, _driver = await api.started(ada)
    folder = leave(api.settings.home, f"{run_id}-a1")
    assert (await ada.delete(f"/runs/{run_id}")).status_code == 409
    assert (folder / "checkpoints" / "model").exists()


async def test_nobody_elses_files_can_be_deleted(api: Api) -> None:
    ada, eve = await api.user("ada"), await api.user("eve")
    run_id = await ended_run(ada)
    folder = leave(api.settings.home, f"{run_id}-a1")
    assert (await eve.delete(f"/runs/{run_id}")).status_code == 404
    assert folder.is_dir()


async def test_an_experiment_is_deleted_with_the_files_of_all_its_runs(api: Api) -> None:
    ada = await api.user()
    experiment = (await ada.post("/experiments", json={"title": "seeds"})).json()["id"]
    runs = [await ended_run(ada, experiment_id=experiment) for _ in range(2)]
    folders = [leave(api.settings.home, f"{run_id}-a1") for run_id in runs]
    answer = await ada.delete(f"/experiments/{experiment}")
    assert answer.json()["freed_bytes"] == 2 * len("weights")
    assert not any(folder.exists() for folder in folders)


async def test_a_folder_that_cannot_be_moved_keeps_the_run_and_all_files(api: Api) -> None:
    ada = await api.user()
    experiment = (await ada.post("/experiments", json={"title": "seeds"})).json()["id"]
    runs = sorted([await ended_run(ada, experiment_id=experiment) for _ in range(2)])
    folders = [leave(api.settings.home, f"{run_id}-a1") for run_id in runs]
    in_the_way = api.settings.home / "attempts" / ".deleted" / f"{runs[1]}-a1"
    in_the_way.mkdir(parents=True)
    (in_the_way / "file").write_text("")
    answer = await ada.delete(f"/experiments/{experiment}")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(folders[1]) in answer.json()["detail"]
    assert "Nothing was deleted" in answer.json()["detail"]
    for run_id, folder in zip(runs, folders, strict=True):
        assert (await read_run(ada, run_id))["status"] == "stopped"
        assert (folder / "checkpoints" / "model").read_text() == "weights"


async def test_files_go_back_to_their_place_when_the_record_stays(tmp_path: Path) -> None:
    folder = leave(tmp_path, "r1-a1")

    async def delete_in_vain() -> None:
        async with files.set_aside(tmp_path, ["r1-a1"]):
            assert not folder.exists()
            raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError):
        await delete_in_vain()
    assert (folder / "checkpoints" / "model").read_text() == "weights"


async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_one(tmp_path: Path) -> None:
    leave(tmp_path, ".deleted/r1-a1")
    async with files.set_aside(tmp_path, ["r1-a1"]) as folders:
        pass
    assert await files.removed(folders) == files.Removal(len("weights"), ())
    assert not folders[0].exists()


async def test_files_whose_record_is_gone_are_removed_when_the_api_starts(api: Api) -> None:
    ada = await api.user()
    run_id = await ended_run(ada)
    gone = leave(api.settings.home, ".deleted/r0000000-a1")
    kept = leave(api.settings.home, f".deleted/{run_id}-a1")
    await maintenance.finish_deletions(api.context)
    assert not gone.exists()
    assert kept.is_dir()


async def test_what_a_link_leads_to_is_not_removed(tmp_path: Path) -> None:
    elsewhere = leave(tmp_path / "elsewhere", "r9-a1")
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "r1-a1").symlink_to(elsewhere)
    (leave(tmp_path, "r2-a1") / "link").symlink_to(elsewhere)
    async with files.set_aside(tmp_path, ["r1-a1", "r2-a1"]) as folders:
        pass
    assert await files.removed(folders) == files.Removal(len("weights"), ())
    assert (elsewhere / "checkpoints" / "model").read_text() == "weights"
    assert list((tmp_path / "attempts" / ".deleted").iterdir()) == []


@pytest.mark.parametrize("name", ["..", "../r1-a1", "", ".", ".deleted", "/r1-a1", "r1-a1/.."])
async def test_only_a_folder_named_like_an_attempt_is_touched(tmp_path: Path, name: str) -> None:
    folder = leave(tmp_path, "r1-a1")
    with pytest.raises(ValueError, match="names no attempt"):
        async with files.set_aside(tmp_path, [name]):
            pass
    assert folder.is_dir()


async def test_what_could_not_be_removed_is_named(tmp_path: Path) -> None:
    gone, there = tmp_path / "gone", leave(tmp_path, "r1-a1")
    removal = await files.removed([gone, there])
    assert removal.freed_bytes == len("weights")
    assert removal.left_behind == (f"{gone} (No such file or directory)",)
    assert not there.exists()
