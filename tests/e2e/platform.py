"""A platform that is up, and the ways to it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import yaml

from backend.ids import attempt_id
from cli.processes import wait_until
from lagoon.config import RunConfig
from lagoon.status import RunStatus
from tests.cli.test_up import lagoon, processes_with

PAGE = 1000


class Platform:
    """A platform by its home folder, its ``lagoon up`` and what that said.

    Close its ``api`` at the end.
    """

    def __init__(self, home: Path, starter: subprocess.Popen[str], said: list[str]) -> None:
        self.home = home
        self.starter = starter
        self.link = next(word for line in said for word in line.split() if "ticket=" in word)
        credentials = json.loads((home / "credentials" / "cli.json").read_text())
        self.api_url, self.dashboard_url = credentials["api_url"], credentials["dashboard_url"]
        self.api = httpx.Client(
            base_url=self.api_url + "/api/v1",
            headers={"authorization": f"Bearer {credentials['token']}"},
            timeout=30,
            trust_env=False,
        )

    def run_from_the_command_line(self, config: RunConfig, name: str) -> dict[str, Any]:
        """Create a run, wait for its end, and show it."""
        file = self.home / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
        created = lagoon(self.home, "runs", "create", str(file), "--name", name, "--wait", "--json")
        assert created.stdout, created.stderr
        shown = lagoon(self.home, "runs", "show", json.loads(created.stdout)["id"], "--json")
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def create(self, config: RunConfig, name: str) -> str:
        """Create a run through the API; its id."""
        body = {"name": name, "config": config.model_dump(mode="json")}
        created = self.api.post("/runs", json=body)
        assert created.status_code == 201, created.text
        run_id: str = created.json()["id"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        answer = self.api.get(f"/runs/{run_id}")
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        assert wait_until(lambda: RunStatus(self.run(run_id)["status"]).is_terminal, 120)
        return self.run(run_id)

    def log(self, run_id: str) -> str:
        """The end of the run's log."""
        items = self.api.get(f"/runs/{run_id}/log", params={"limit": PAGE}).json()["items"]
        return "\n".join(item["line"] for item in items)

    def processes_of_run(self, run_id: str, attempt: int = 1) -> dict[int, str]:
        """The running processes of one attempt, driver included, by their titles."""
        return processes_with(f"LAGOON_ATTEMPT={attempt_id(run_id, attempt)}")
