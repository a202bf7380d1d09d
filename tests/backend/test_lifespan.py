"""The API as it is served: it starts, works by itself, and stops without leaving anything."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.api import Api, make_run, read_run, running_api

FORBIDDEN = ("torch", "ray", "vllm", "transformers", "streamlit", "workers", "dashboard", "cli")


async def test_a_served_api_makes_its_admin_and_starts_runs_by_itself(api: Api) -> None:
    async with api.app.router.lifespan_context(api.app):
        password = (api.settings.credentials_dir / "admin-password").read_text().strip()
        body = {"username": "admin", "password": password}
        token = (await api.client().post("/session", json=body)).json()["token"]
        admin = api.client(token)
        run = await make_run(admin)
        await api.see_nodes()
        async with asyncio.timeout(30):
            while (await read_run(admin, run["id"]))["status"] != "starting":
                await asyncio.sleep(0.05)  # the API's own turn is what is waited for
            while not api.queue.sent:
                await asyncio.sleep(0.05)
    assert api.queue.sent == [("workers.submit", [f"{run['id']}-a1"])]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "maintenance"]


async def test_the_api_starts_without_a_database_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = f"postgresql+psycopg://u:hidden@/db?host={tmp_path}"
    async with (
        running_api(nowhere, tmp_path / "home") as api,
        api.app.router.lifespan_context(api.app),
    ):
        answer = await api.client().get("http://api.test/readyz")
        assert answer.status_code == 503
        assert not answer.json()["checks"]["postgres"]["ok"]
    assert "the database does not answer yet" in caplog.text
    assert "hidden" not in caplog.text


def test_the_api_never_loads_an_accelerator_library_nor_another_process_code() -> None:
    code = "import sys, backend.app; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(FORBIDDEN)
