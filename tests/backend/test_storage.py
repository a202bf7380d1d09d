"""What runs take is counted and shown; what retention removes is said, and nothing else is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from backend.storage import retention
from backend.storage.accounting import listed
from backend.storage.lease import LOCK
from tests.backend.api import Api, ended, make_run, phase, read_run, running_api, send, step
from tests.backend.test_ingest import histogram, log, trajectory
from tests.backend.weights import weights

DAY = 86_400.0


@asynccontextmanager
async def keeping(database_url: str, home: Path, **settings: Any) -> AsyncIterator[Api]:
    async with running_api(database_url, home, **settings) as api:
        yield api


async def reported(api: Api, user: httpx.AsyncClient, *events: dict[str, Any]) -> str:
    """An ended run whose driver reported ``events``."""
    run_id, driver = await api.started(user)
    batch = {"writer": "driver", "number": 1, "events": [phase("running"), *events]}
    await send(driver, run_id, batch)
    await send(driver, run_id, {"writer": "driver", "number": 2, "events": [ended("finished")]})
    await api.gone(run_id)
    return run_id


async def history(user: httpx.AsyncClient, run_id: str, kind: str) -> list[str]:
    items = (await user.get(f"/runs/{run_id}/events")).json()["items"]
    return [item["reason"] for item in items if item["kind"] == kind]


async def log_of(user: httpx.AsyncClient, run_id: str) -> list[str]:
    items = (await user.get(f"/runs/{run_id}/log", params={"after": 0})).json()["items"]
    return [item["line"] for item in items]


async def held(api: Api) -> dict[tuple[str, str], tuple[int, int]]:
    statement = text("SELECT run_id, kind, num_held, held_bytes FROM run_storage")
    async with api.context.database.session() as session:
        return {(row[0], row[1]): (row[2], row[3]) for row in await session.execute(statement)}


def lines(count: int) -> dict[str, Any]:
    return log(*(str(n) for n in range(1, count + 1)))


async def with_weights(
    api: Api, user: httpx.AsyncClient, *sizes: int, is_over: bool = True, last_is_final: bool = True
) -> tuple[str, list[Path]]:
    run_id, driver = await api.started(user)
    home = api.settings.home
    saved = [
        weights(home, run_id, n, size, is_final=last_is_final and n == len(sizes))
        for n, size in enumerate(sizes, start=1)
    ]
    events = [phase("running"), *saved, *([ended("finished")] if is_over else [])]
    await send(driver, run_id, {"writer": "driver", "number": 1, "events": events})
    if is_over:
        await api.gone(run_id)
    return run_id, [Path(event["path"]) for event in saved]


async def test_what_comes_in_is_counted_by_kind(api: Api) -> None:
    ada = await api.user()
    events = [
        step(1, reward__mean=1.0, trainer__loss=2.0),
        histogram(1, {"0": 5, "2": 7}),
        trajectory(),
        lines(3),
    ]
    run_id = await reported(api, ada, *events)
    counted = await held(api)
    assert {kind: counted[run_id, kind][0] for _, kind in counted} == {
        "points": 2,
        "histograms": 1,
        "trajectories": 1,
        "log_lines": 3,
    }
    assert all(size > 0 for _, size in counted.values())


async def test_a_batch_sent_twice_is_counted_once(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    batch = api.batch([lines(3)])
    for _ in range(2):
        await send(driver, run_id, batch)
    assert (await held(api))[run_id, "log_lines"][0] == 3


async def test_storage_shows_a_member_their_own_runs_and_an_admin_all(api: Api) -> None:
    ada, eve, root = await api.user("ada"), await api.user("eve"), await api.user("root", "admin")
    small = await reported(api, ada, lines(1))
    large, _ = await with_weights(api, eve, 5000)
    of_ada, of_root = [(await user.get("/storage")).json() for user in (ada, root)]
    assert [run["run_id"] for run in of_ada["runs"]] == [small]
    assert of_ada["home"] is None
    assert [run["run_id"] for run in of_root["runs"]] == [large, small]
    [first, second] = of_root["runs"]
    assert (first["checkpoint_bytes"], first["owner"]) == (5000, "eve")
    assert second["log_bytes"] > 0
    assert of_root["total"]["total_bytes"] == first["total_bytes"] + second["total_bytes"]
    assert of_root["home"]["database_bytes"] > 0
    assert of_root["home"]["disk_free_bytes"] > 0
    assert (await api.client().get("/storage")).status_code == 401
    assert (await root.get("/storage", params={"limit": 1})).json()["num_runs"] == 2


async def test_spools_are_measured_and_links_are_not_followed(api: Api, tmp_path: Path) -> None:
    ada = await api.user()
    run_id = (await make_run(ada))["id"]
    spool = api.settings.home / "attempts" / f"{run_id}-a1" / "spool"
    spool.mkdir(parents=True)
    (spool / "0000000001.jsonl").write_text("12345")
    (tmp_path / "large").write_text("x" * 1000)
    (spool / "link").symlink_to(tmp_path / "large")
    [run] = (await ada.get("/storage")).json()["runs"]
    assert (run["spool_bytes"], run["total_bytes"]) == (5, 5)


async def test_dropped_telemetry_is_said_in_the_history_and_on_the_run(api: Api) -> None:
    ada = await api.user()
    run_id, driver = await api.started(ada)
    counts = [{"points": 1200, "trajectory_texts": 1}, {"points": 1}]
    for cause, dropped in zip(("quota", "disk"), counts, strict=True):
        event = {"type": "telemetry_dropped", "at": 1.9e9, "cause": cause, "counts": dropped}
        await send(driver, run_id, api.batch([event]))
    assert await history(ada, run_id, "telemetry_dropped") == [
        "The driver dropped 1 trajectory text and 1,200 metric points: the API did not "
        "take events, and the driver's spool reached its quota.",
        "The driver dropped 1 metric point: the disk of the driver's machine was full.",
    ]
    assert (await read_run(ada, run_id))["missing"] == [
        {"kind": "points", "num_expired": 0, "num_dropped": 1201},
        {"kind": "trajectory_texts", "num_expired": 0, "num_dropped": 1},
    ]


def test_counts_are_listed_in_the_order_in_which_things_go() -> None:
    counts = {"points": 2, "log_lines": 1, "trajectories": 3000}
    assert listed(counts) == ("3,000 trajectories, 1 line of the log and 2 metric points")


async def test_without_limits_of_time_what_is_within_the_caps_stays_for_ever(api: Api) -> None:
    ada = await api.user()
    run_id = await reported(api, ada, lines(3), trajectory())
    api.clock.advance(10_000 * DAY)
    await retention.turn(api.context)
    root = await api.user("root", "admin")  # the owner's session has long expired
    assert await log_of(root, run_id) == ["1", "2", "3"]
    assert (await read_run(root, run_id))["missing"] == []


async def test_of_a_run_past_the_cap_the_newest_lines_and_trajectories_stay(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 7)
    caps = {"max_log_lines_per_run": 100, "max_trajectories_per_run": 10}
    async with keeping(database_url, tmp_path, **caps) as api:
        ada = await api.user()
        below, above = await reported(api, ada, lines(110)), await reported(api, ada, lines(125))
        many = await reported(api, ada, *(trajectory(f"t{n}") for n in range(12)))
        await retention.turn(api.context)
        assert len(await log_of(ada, below)) == 110  # a tenth more may gather
        assert await log_of(ada, above) == [str(n) for n in range(26, 126)]
        tail = (await ada.get(f"/runs/{above}/log", params={"limit": 1})).json()["items"]
        assert [item["n"] for item in tail] == [125]
        shown = (await ada.get(f"/runs/{many}/trajectories")).json()["items"]
        assert [t["trajectory_id"] for t in shown] == [f"t{n}" for n in range(11, 1, -1)]
        assert await history(ada, above, "expired") == [
            "Retention removed 25 lines of the log, the oldest: the newest 100 of a run are kept."
        ]
        assert (await read_run(ada, above))["missing"] == [
            {"kind": "log_lines", "num_expired": 25, "num_dropped": 0}
        ]
        assert (await held(api))[above, "log_lines"][0] == 100
        await retention.turn(api.context)
        assert len(await history(ada, above, "expired")) == 1


async def test_what_ended_long_ago_loses_its_log_and_trajectories_but_not_its_metrics(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(
        database_url, tmp_path, log_retention_days=2, trajectory_retention_days=3
    ) as api:
        ada = await api.user()
        events = (lines(5), trajectory(), step(1, reward__mean=1.0))
        old = await reported(api, ada, *events)
        going_on, driver = await api.started(ada)
        await send(driver, going_on, {"writer": "driver", "number": 1, "events": [lines(5)]})
        api.clock.advance(2.5 * DAY)
        await retention.turn(api.context)
        assert await log_of(ada, old) == []
        assert len((await ada.get(f"/runs/{old}/trajectories")).json()["items"]) == 1
        api.clock.advance(DAY)
        await retention.turn(api.context)
        assert (await ada.get(f"/runs/{old}/trajectories")).json()["items"] == []
        series = (await ada.get(f"/runs/{old}/metrics", params={"name": "reward/mean"})).json()
        assert series["series"][0]["points"]["value"] == [1.0]
        assert len(await log_of(ada, going_on)) == 5
        assert (await held(api))[old, "log_lines"] == (0, 0)
        assert await history(ada, old, "expired") == [
            "Retention removed 5 lines of the log, the oldest: they are kept for 2 days after a "
            "run's end.",
            "Retention removed 1 trajectory, the oldest: they are kept for 3 days after a run's "
            "end.",
        ]


async def test_a_driver_reports_on_while_rows_of_its_run_are_removed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_ROWS", 10)
    async with keeping(database_url, tmp_path, max_log_lines_per_run=100) as api:
        ada = await api.user()
        run_id, driver = await api.started(ada)
        await send(driver, run_id, api.batch([lines(400)]))

        async def report() -> None:
            for n in range(401, 431):
                await send(driver, run_id, api.batch([log(str(n))]))

        await asyncio.gather(retention.turn(api.context), report())
        kept = await log_of(ada, run_id)
        [missing] = (await read_run(ada, run_id))["missing"]
        assert missing["num_expired"] >= 300
        assert kept == [str(n) for n in range(missing["num_expired"] + 1, 431)]
        assert (await held(api))[run_id, "log_lines"][0] == len(kept)


async def test_a_run_that_is_deleted_meanwhile_is_passed_over(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keeping(database_url, tmp_path, log_retention_days=1) as api:
        ada = await api.user()
        run_id = await reported(api, ada, lines(2))
        api.clock.advance(2 * DAY)
        due = retention._due

        async def due_then_deleted(*arguments: Any) -> Any:
            tasks = await due(*arguments)
            assert (await ada.delete(f"/runs/{run_id}")).status_code == 200
            return tasks

        monkeypatch.setattr(retention, "_due", due_then_deleted)
        await retention.turn(api.context)
        assert await held(api) == {}


async def test_lines_that_come_after_a_removal_are_numbered_on(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(database_url, tmp_path, max_log_lines_per_run=100) as api:
        ada = await api.user()
        run_id, driver = await api.started(ada)
        await send(driver, run_id, api.batch([lines(120)]))
        await retention.turn(api.context)
        await send(driver, run_id, api.batch([log("after")]))
        items = (await ada.get(f"/runs/{run_id}/log", params={"after": 119})).json()["items"]
        assert [(item["n"], item["line"]) for item in items] == [(120, "120"), (121, "after")]


async def test_a_counter_that_is_too_high_is_set_right_and_nothing_is_invented(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(database_url, tmp_path, log_retention_days=1) as api:
        ada = await api.user()
        run_id = await reported(api, ada, lines(2))
        async with api.context.database.session() as session:
            await session.execute(text("UPDATE run_storage SET num_held = 9"))
            await session.commit()
        api.clock.advance(2 * DAY)
        await retention.turn(api.context)
        assert (await held(api))[run_id, "log_lines"] == (0, 0)
        [missing] = (await read_run(ada, run_id))["missing"]
        assert missing["num_expired"] == 2


async def test_one_process_at_a_time_removes(database_url: str, tmp_path: Path) -> None:
    settings = {"log_retention_days": 1, "checkpoint_quota_bytes": 0}
    async with keeping(database_url, tmp_path, **settings) as api:
        ada = await api.user()
        run_id = await reported(api, ada, lines(2))
        _, folders = await with_weights(api, ada, 10, 10)
        api.clock.advance(2 * DAY)
        async with api.context.database.session() as session:
            await session.execute(text("select pg_advisory_xact_lock(:key)"), {"key": LOCK})
            await retention.turn(api.context)
        assert len(await log_of(ada, run_id)) == 2
        assert all(folder.exists() for folder in folders)


async def test_past_the_quota_the_oldest_weights_of_ended_runs_go_but_never_the_last_ones(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(database_url, tmp_path, checkpoint_quota_bytes=600) as api:
        ada = await api.user()
        first, of_first = await with_weights(api, ada, 100, 100, 100)
        second, of_second = await with_weights(api, ada, 100, 100, last_is_final=False)
        active, of_active = await with_weights(api, ada, 300, 300, is_over=False)
        await retention.turn(api.context)
        # 1,100 bytes: only the four that may go, of which three are not the newest of their run.
        assert [folder.exists() for folder in of_first] == [False, False, True]
        assert [folder.exists() for folder in of_second] == [False, True]
        assert all(folder.exists() for folder in of_active)
        left = {
            run_id: [each["step"] for each in (await read_run(ada, run_id))["checkpoints"]]
            for run_id in (first, second, active)
        }
        assert left == {first: [3], second: [2], active: [1, 2]}
        assert await history(ada, second, "expired") == [
            "Retention removed the weights of step 1 (100 bytes): the home folder's weights may "
            "take 600 bytes."
        ]
        assert (await read_run(ada, first))["missing"] == [
            {"kind": "checkpoints", "num_expired": 2, "num_dropped": 0}
        ]


async def test_no_more_weights_go_than_the_quota_asks_for(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(database_url, tmp_path, checkpoint_quota_bytes=250) as api:
        ada = await api.user()
        _, folders = await with_weights(api, ada, 100, 100, 100)
        await retention.turn(api.context)
        assert [folder.exists() for folder in folders] == [False, True, True]


@pytest.mark.parametrize("place", ["elsewhere", "another run's", "a link", "above"])
async def test_weights_that_lie_elsewhere_are_never_touched(
    database_url: str, tmp_path: Path, place: str
) -> None:
    home = tmp_path / "home"
    async with keeping(database_url, home, checkpoint_quota_bytes=0) as api:
        ada = await api.user()
        run_id, driver = await api.started(ada)
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "model").write_text("mine")
        own = home / "attempts" / f"{run_id}-a1" / "checkpoints"
        own.mkdir(parents=True)
        (own / "link").symlink_to(outside)
        other = home / "attempts" / "other-a1" / "checkpoints" / "step"
        other.mkdir(parents=True)
        (other / "model").write_text("theirs")
        path = {
            "elsewhere": outside,
            "another run's": other,
            "a link": own / "link",
            "above": own / "..",
        }[place]
        event = {"type": "checkpoint", "at": 1.9e9, "step": 1, "path": str(path), "is_final": False}
        last = {**event, "step": 2, "path": str(own / "none")}
        batch = api.batch([phase("running"), event, last, ended("finished")], number=1)
        await send(driver, run_id, batch)
        await retention.turn(api.context)
        assert (outside / "model").read_text() == "mine"
        assert (other / "model").read_text() == "theirs"
        assert len((await read_run(ada, run_id))["checkpoints"]) == 2


async def test_a_removal_that_was_cut_short_is_undone_or_finished(
    database_url: str, tmp_path: Path
) -> None:
    async with keeping(database_url, tmp_path, checkpoint_quota_bytes=1000) as api:
        ada = await api.user()
        _, [recorded, last] = await with_weights(api, ada, 10, 10)
        aside = recorded.with_name(f".{recorded.name}.expired")
        recorded.rename(aside)
        forgotten = last.with_name(".step-000000.expired")
        forgotten.mkdir()
        await retention.turn(api.context)
        assert recorded.exists()
        assert not aside.exists()
        assert not forgotten.exists()
