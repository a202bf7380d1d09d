"""Which weights retention leaves where they are."""

from __future__ import annotations

from pathlib import Path

from backend.runs.creation import new_attempt
from backend.storage import retention
from tests.backend.api import ended, phase, read_run, running_api, send
from tests.backend.weights import weights


async def test_weights_that_a_resume_would_go_on_from_stay_though_superseded_ones_are_newer(
    database_url: str, tmp_path: Path
) -> None:
    async with running_api(database_url, tmp_path, checkpoint_quota_bytes=0) as api:
        ada = await api.user()
        run_id, driver = await api.started(ada)
        saved = [weights(tmp_path, run_id, n, 100, is_final=n > 2) for n in (1, 2, 3, 4)]
        batch = api.batch([phase("running"), *saved, ended("stopped")], writer="first")
        await send(driver, run_id, batch)
        await api.gone(run_id)
        oldest = (await read_run(ada, run_id))["checkpoints"][0]["id"]
        async with api.context.database.session() as session:
            later = new_attempt(run_id, 2, api.clock(), candidates=[saved[0]["path"]])
            later.status, later.resumed_step, later.gone_at = "stopped", 1, api.clock()
            session.add(later)
            await session.commit()
        await retention.turn(api.context)
        left = {each["id"]: each["step"] for each in (await read_run(ada, run_id))["checkpoints"]}
        assert left[oldest] == 1  # attempt 2 went on from it, and saved nothing
        assert sorted(left.values()) == [1, 4]  # of two final ones the last
