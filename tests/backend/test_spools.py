"""Spools that are of no more use are removed, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.storage import retention
from lagoon.spools import spool_of
from tests.backend.test_storage import DAY, keeping, lines, reported


@pytest.mark.parametrize(("log_days", "kept_days"), [(None, 7), (2, 2), (30, 7)])
async def test_a_spool_is_removed_a_week_after_its_attempt_or_with_the_log(
    database_url: str, tmp_path: Path, log_days: int | None, kept_days: int
) -> None:
    async with keeping(database_url, tmp_path, log_retention_days=log_days) as api:
        ada = await api.user()
        ids = [f"{await reported(api, ada, lines(1))}-a1" for _ in range(2)]
        arrived, undelivered = (spool_of(tmp_path, id) for id in ids)
        running = spool_of(tmp_path, f"{(await api.started(ada))[0]}-a1")
        unknown = spool_of(tmp_path, "r0000000-a1")
        for spool in (arrived, undelivered, running, unknown):
            spool.mkdir(parents=True)
            (spool / "0000000001.jsonl").write_text("12345")
            if spool is not undelivered:
                (spool / "delivered").touch()
        api.clock.advance((kept_days - 0.1) * DAY)
        await retention.turn(api.context)
        assert arrived.exists()
        api.clock.advance(0.2 * DAY)
        await retention.turn(api.context)
        there = [spool.exists() for spool in (arrived, undelivered, running, unknown)]
        assert there == [False, True, True, True]
        assert arrived.parent.exists()
