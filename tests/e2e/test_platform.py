"""The whole platform, as its user meets it: a run started in the browser learns before one's eyes,
one from the command line and one through the API finish, and failures say their cause."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import Page, expect

from cli.processes import wait_until
from lagoon.config import RunConfig
from lagoon.status import RunStatus
from tests.cli.test_up import lagoon, up, without_building
from tests.dashboard import browser
from tests.e2e.runs import small_es, small_grpo

pytestmark = [pytest.mark.engine, pytest.mark.slow]
RUN_TIMEOUT_MS = 240_000


class Platform:
    """A platform that is up, and the ways to it."""

    def __init__(self, home: Path, said: list[str]) -> None:
        self.home = home
        self.link = next(word for line in said for word in line.split() if "ticket=" in word)
        credentials = json.loads((home / "credentials" / "cli.json").read_text())
        self.dashboard_url = credentials["dashboard_url"]
        self.api = httpx.Client(
            base_url=credentials["api_url"] + "/api/v1",
            headers={"authorization": f"Bearer {credentials['token']}"},
            timeout=30,
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

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        found: dict[str, Any] = {}

        def has_ended() -> bool:
            found.update(self.api.get(f"/runs/{run_id}").json())
            return RunStatus(found["status"]).is_terminal

        assert wait_until(has_ended, 120)
        return found


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("platform") / "home"
    without_building(home)
    with up(home) as (_, said):
        found = Platform(home, said)
        with found.api:
            yield found


@pytest.mark.browser
@pytest.mark.skipif(browser.missing_reason() is not None, reason="Chromium is not installed")
def test_a_run_launched_in_the_browser_learns_before_ones_eyes(
    platform: Platform, policy_folder: Path
) -> None:
    config = small_grpo(
        policy_folder,
        method={"name": "grpo", "num_prompts": 8, "group_size": 8},
        budget={"max_steps": 48},
        environment={
            "name": "calculator",
            "num_operations": 1,
            "max_turns": 2,
            "mean_wait_seconds": 0.01,
        },
    )
    with browser.open_browser() as page:
        browser.sign_in_by_link(page, platform.link)
        page.goto(f"{platform.dashboard_url}/launch")
        page.get_by_label("Run name").fill("from the browser")
        page.get_by_text("YAML", exact=True).first.click()
        editor = page.get_by_label("Configuration")
        editor.fill(yaml.safe_dump(config.model_dump(mode="json")))
        editor.press("Control+Enter")
        browser.settle(page)
        page.get_by_role("button", name="Launch").click()
        expect(page.locator("h1.lg-title")).to_contain_text("from the browser", timeout=30_000)
        run_id = re.search(r"run=(\w+)", page.url)
        assert run_id
        expect(page.locator("h1.lg-title .lg-pill")).to_contain_text(
            "finished", timeout=RUN_TIMEOUT_MS
        )
        curve = reward_curve(page)
    assert len(curve) == 48
    # Means of 768 episodes each: chance alone moves their difference by about 0.025.
    assert sum(curve[-12:]) / 12 > sum(curve[:12]) / 12 + 0.05


def reward_curve(page: Page) -> list[float]:
    """The heights of the first curve that the page has drawn."""
    browser.settle(page)
    drawn: list[float] = page.evaluate(
        "document.querySelector('.js-plotly-plot').calcdata[0].map(point => point.y)"
    )
    return drawn


def test_runs_from_the_command_line_and_through_the_api_finish(
    platform: Platform, policy_folder: Path
) -> None:
    shown = platform.run_from_the_command_line(small_es(policy_folder), "from the command line")
    assert shown["status"] == "finished"
    assert shown["last_heldout_success"] is not None
    config = small_grpo(policy_folder, budget={"max_steps": 1}).model_dump(mode="json")
    created = platform.api.post("/runs", json={"name": "through the API", "config": config})
    assert created.status_code == 201, created.text
    assert platform.ended(created.json()["id"])["status"] == "finished"


def test_a_model_folder_without_a_tokenizer_says_so_on_its_page(
    platform: Platform, policy_folder: Path, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((policy_folder / name).read_bytes())
    shown = platform.run_from_the_command_line(small_grpo(tmp_path), "no tokenizer")
    assert shown["status"] == "failed"
    assert "tokenizer" in shown["reason"]
    assert "\n" not in shown["reason"]
    log = platform.api.get(f"/runs/{shown['id']}/log").json()["items"]
    assert any("Traceback" in item["line"] for item in log)
