"""The whole platform, as its user meets it: a run started in the browser learns before one's eyes,
one from the command line and one through the API finish, and failures say their cause."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, expect

from cli.processes import wait_until
from lagoon.metrics import LEDGER_DROPPED, LEDGER_ISSUED, LEDGER_TRAINED, LOSS, PROMPT_PLACES
from tests.cli.test_up import (
    lagoon,
    processes_of,
    serves_and_signs_in,
    up,
    without_building,
)
from tests.dashboard import browser
from tests.e2e.platform import Platform
from tests.e2e.runs import small_es, small_grpo

pytestmark = [pytest.mark.engine, pytest.mark.slow]
RUN_TIMEOUT_MS = 240_000
NUM_STEPS = 36
REWARD_CURVE = "document.querySelector('.st-key-panel_reward .js-plotly-plot')?.calcdata?.[0]"
"""The points of the first line of the overview's reward chart, once it is drawn."""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("platform") / "home"
    without_building(home)
    with up(home) as (starter, said):
        found = Platform(home, starter, said)
        with found.api:
            yield found


@pytest.mark.browser
@browser.needs_chromium
def test_a_run_launched_in_the_browser_learns_before_ones_eyes(
    platform: Platform, policy_folder: Path
) -> None:
    with browser.open_browser() as page:
        browser.sign_in_by_link(page, platform.link)
        page.goto(f"{platform.dashboard_url}/launch")
        fill_in(page, "from the browser", policy_folder)
        page.get_by_role("button", name="Launch").click()
        expect(page.locator("h1.lg-title")).to_contain_text("from the browser", timeout=30_000)
        assert re.search(r"run=\w+", page.url)
        page.wait_for_function(f"{REWARD_CURVE}?.length >= 3", timeout=RUN_TIMEOUT_MS)
        early = reward_curve(page)
        expect(page.locator("h1.lg-title .lg-pill")).to_contain_text(
            "finished", timeout=RUN_TIMEOUT_MS
        )
        curve = reward_curve(page)
    # It grew on its own: nobody touched the page in between.
    assert 3 <= len(early) < NUM_STEPS
    assert curve[: len(early)] == early
    assert len(curve) == NUM_STEPS
    # Means of 768 episodes each: chance alone moves their difference by about 0.025.
    assert sum(curve[-12:]) / 12 > sum(curve[:12]) / 12 + 0.05


def fill_in(page: Page, name: str, policy_folder: Path) -> None:
    """A preset, changed in the form, then what is this test's own in YAML: the small policy."""
    page.get_by_role("button", name="Use GRPO on the calculator").click()
    # The preset's form takes the place of the one before; for a moment both are there.
    page.locator("input[aria-label='Run name'][value='grpo-calculator']").wait_for()
    expect(page.get_by_label("Run name")).to_have_count(1)
    browser.settle(page)
    page.get_by_label("Run name").fill(name)
    for label, value in (("Num prompts", 8), ("Num operations", 1), ("Max turns", 2)):
        field = page.get_by_label(label, exact=True)
        field.fill(str(value))
        field.press("Enter")
        browser.settle(page)
    page.get_by_text("YAML", exact=True).first.click()
    editor = page.get_by_label("Configuration")
    for line in ("num_prompts: 8", "num_operations: 1", "max_turns: 2"):
        expect(editor).to_have_value(re.compile(line))
    config = yaml.safe_load(editor.input_value())
    config["model"]["path"] = str(policy_folder)
    config["budget"]["max_steps"] = NUM_STEPS
    config["environment"]["mean_wait_seconds"] = 0.01
    config["evaluation"]["num_tasks"] = 16
    config["rollout"]["kv_cache_gib"] = 0.25
    editor.fill(yaml.safe_dump(config))
    editor.press("Control+Enter")
    browser.settle(page)


def reward_curve(page: Page) -> list[float]:
    """The heights of the reward curve as the page has drawn it."""
    browser.settle(page)
    drawn: list[float] = page.evaluate(f"{REWARD_CURVE}.map(point => point.y)")
    return drawn


def test_runs_from_the_command_line_and_through_the_api_finish(
    platform: Platform, policy_folder: Path
) -> None:
    shown = platform.run_from_the_command_line(small_es(policy_folder), "from the command line")
    assert shown["status"] == "finished"
    assert shown["last_heldout_success"] is not None
    config = small_grpo(policy_folder, budget={"max_steps": 1})
    run_id = platform.create(config, "through the API")
    assert platform.ended(run_id)["status"] == "finished"


def test_a_model_folder_without_a_tokenizer_says_so_on_its_page(
    platform: Platform, policy_folder: Path, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((policy_folder / name).read_bytes())
    shown = platform.run_from_the_command_line(small_grpo(tmp_path), "no tokenizer")
    assert "tokenizer" in failure_of(platform, shown["id"])


def test_an_environment_that_raises_in_mid_run_is_named_with_its_traceback(
    platform: Platform, policy_folder: Path
) -> None:
    """No hook is needed: a dataset of one question leaves the other split without any task, which
    only its environment can find out. The question is a held-out one here, so that the run gets
    through its first evaluation and fails in training."""
    pytest.importorskip("reasoning_gym", reason="reasoning-gym needs a C compiler to install")
    one_question = {"size": 1, "seed": 1}
    dataset = {"name": "reasoning_gym", "dataset": "chain_sum", "dataset_options": one_question}
    config = small_grpo(
        policy_folder,
        environment=dataset,
        # Few episodes: each draws ten thousand tasks before it gives up.
        method={"name": "grpo", "num_prompts": 1, "group_size": 2},
        evaluation={"num_tasks": 1},
    )
    run_id = platform.create(config, "no task")
    reason = failure_of(platform, run_id)
    assert reason.startswith("The environment raised an error: NoSuchTask: no train task")
    assert "NoSuchTask" in platform.log(run_id)
    assert platform.run(run_id)["first_heldout_success"] is not None


def test_a_run_whose_processes_are_killed_goes_on_where_it_was_and_stopped_means_gone(
    platform: Platform, policy_folder: Path
) -> None:
    config = small_grpo(
        policy_folder,
        budget={"max_steps": 1000, "max_restarts": 1},
        checkpoint={"every_steps": 1},
    )
    run_id = platform.create(config, "processes die")
    assert wait_until(lambda: (platform.run(run_id)["step"] or 0) >= 2, 120)
    working = platform.processes_of_run(run_id)
    # The engine's process carries its run's mark, too, as does the server it was forked from.
    servers = [title for title in working.values() if "multiprocessing.forkserver" in title]
    assert len(servers) == 2, working
    killed = actor(platform, run_id, "GeneratorActor")
    os.kill(killed, signal.SIGKILL)
    assert wait_until(lambda: actor(platform, run_id, "GeneratorActor") not in (0, killed), 60)
    wanted = platform.run(run_id)["step"] + 3
    assert wait_until(lambda: platform.run(run_id)["step"] >= wanted, 120)
    assert len(platform.run(run_id)["attempts"]) == 1

    os.kill(actor(platform, run_id, "TrainerActor"), signal.SIGKILL)
    assert wait_until(lambda: len(platform.run(run_id)["attempts"]) == 2, 60)
    assert wait_until(lambda: not platform.processes_of_run(run_id, attempt=1), 30)
    assert "Traceback (most recent call last)" in platform.log(run_id)
    assert wait_until(lambda: platform.run(run_id)["attempts"][1]["resumed_step"] is not None, 120)
    first, second = platform.run(run_id)["attempts"]
    assert first["reason"].startswith("The trainer failed: its process was killed")
    assert second["resumed_step"] >= 2
    wanted = second["resumed_step"] + 3
    assert wait_until(lambda: platform.run(run_id)["step"] >= wanted, 120)

    assert platform.processes_of_run(run_id, attempt=2)
    asked_at = time.monotonic()
    assert platform.api.post(f"/runs/{run_id}/stop").status_code == 202
    run = platform.ended(run_id)
    assert platform.processes_of_run(run_id, attempt=2) == {}
    assert time.monotonic() - asked_at < 30
    assert run["status"] == "stopped"
    phases = ("stop_heard_at", "stop_saved_at", "marker_at", "gone_at")
    moments = [run["attempts"][1][phase] for phase in phases]
    in_order = [run["stop_requested_at"], *moments, run["ended_at"]]
    assert in_order == sorted(in_order)
    assert run["checkpoints"][-1]["is_final"]
    every_step_is_there_once(platform, run)


def test_an_asynchronous_run_is_paused_and_changed_and_outlives_one_of_its_two_generators(
    platform: Platform, policy_folder: Path
) -> None:
    config = small_grpo(
        policy_folder,
        method={"name": "async_grpo", "num_prompts": 4, "group_size": 4, "max_staleness": 4},
        budget={"max_steps": 1000},
        rollout={"kv_cache_gib": 0.25, "num_generators": 2, "max_concurrent": 32},
        resources={"cpus_per_generator": 0.5},
    )
    run_id = platform.create(config, "two generators")
    assert wait_until(lambda: (platform.run(run_id)["step"] or 0) >= 2, 180)
    paused_at = changed(platform, run_id, {"paused": True})
    assert wait_until(lambda: platform.run(run_id)["step"] == paused_at, 30)
    wanted = {"rollout.max_concurrent": 16, "method.max_staleness": 2}
    assert changed(platform, run_id, wanted) == paused_at  # nothing was trained on meanwhile
    assert platform.api.post(f"/runs/{run_id}/resume", json={}).is_success
    assert wait_until(lambda: platform.run(run_id)["step"] >= paused_at + 3, 120)

    before = actors(platform, run_id, "GeneratorActor")
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    killed_at = platform.run(run_id)["step"]

    def is_replaced() -> bool:
        now = actors(platform, run_id, "GeneratorActor")
        return len(now) == 2 and set(before) & set(now) == {before[1]}

    assert wait_until(is_replaced, 120)
    assert wait_until(lambda: platform.run(run_id)["step"] >= killed_at + 3, 120)
    assert platform.api.post(f"/runs/{run_id}/stop").status_code == 202
    run = platform.ended(run_id)
    assert run["status"] == "stopped"
    assert len(run["attempts"]) == 1
    every_step_is_there_once(platform, run)
    the_ledger_balances(platform, run)


def changed(platform: Platform, run_id: str, settings: dict[str, Any]) -> int:
    """The version at which a change of settings took effect."""
    path = f"/runs/{run_id}/controls"
    number = platform.api.post(path, json={"settings": settings}).json()["changes"][-1]["number"]

    def change() -> dict[str, Any]:
        found = platform.api.get(path).json()["changes"]
        return next(each for each in found if each["number"] == number)

    assert wait_until(lambda: change()["state"] != "pending", 60)
    assert change()["state"] == "applied"
    version: int = change()["version"]
    return version


def the_ledger_balances(platform: Platform, run: dict[str, Any]) -> None:
    """At every step each issued prompt is somewhere."""
    places = [*PROMPT_PLACES.values(), LEDGER_TRAINED, LEDGER_DROPPED]
    names = [metric.name for metric in (LEDGER_ISSUED, *places)]
    read = platform.api.get(f"/runs/{run['id']}/metrics", params={"name": names}).json()
    left = dict.fromkeys(range(1, run["step"] + 1), 0.0)
    for series in read["series"]:
        sign = -1 if series["name"] == LEDGER_ISSUED.name else 1
        points = series["points"]
        for step, value in zip(points["step"], points["value"], strict=True):
            left[step] += sign * value
    assert set(left.values()) == {0.0}


def actors(platform: Platform, run_id: str, name: str) -> list[int]:
    """The processes of the run's actors of that name."""
    return [pid for pid, title in platform.processes_of_run(run_id).items() if name in title]


def actor(platform: Platform, run_id: str, name: str) -> int:
    """The process of the run's actor of that name; 0 while there is none."""
    return next(iter(actors(platform, run_id, name)), 0)


def every_step_is_there_once(platform: Platform, run: dict[str, Any]) -> None:
    """Each step trained four prompts; none was trained on twice, and none was skipped."""
    steps = list(range(1, run["step"] + 1))
    parameters = {"name": [LEDGER_TRAINED.name, LOSS.name]}
    read = platform.api.get(f"/runs/{run['id']}/metrics", params=parameters).json()
    for series in read["series"]:
        assert series["points"]["step"] == steps
        if series["name"] == LEDGER_TRAINED.name:  # as it was when the step's prompts were drawn
            assert series["points"]["value"] == [4.0 * (step - 1) for step in steps]


def failure_of(platform: Platform, run_id: str) -> str:
    """The one sentence by which a run failed. Its log must hold the traceback, and none of its
    processes may be left."""
    run = platform.ended(run_id)
    assert run["status"] == "failed"
    assert "\n" not in run["reason"]
    assert "Traceback (most recent call last)" in platform.log(run_id)
    assert wait_until(lambda: not platform.processes_of_run(run_id), 30)
    reason: str = run["reason"]
    return reason


def test_ctrl_c_ends_an_active_run_as_stopped_and_a_second_start_finds_everything(
    platform: Platform, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of this file: it ends the platform that the others share."""
    run_id = platform.create(small_grpo(policy_folder, budget={"max_steps": 1000}), "shut down")
    assert wait_until(lambda: (platform.run(run_id)["step"] or 0) >= 1, 120)
    platform.starter.send_signal(signal.SIGINT)
    assert platform.starter.wait(90) == 0
    assert processes_of(platform.home) == {}
    assert lagoon(platform.home, "status").returncode == 1

    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")  # nobody has this address
    with up(platform.home) as (starter, said):
        assert (
            "RAY_ADDRESS=192.0.2.1:6379 is ignored: lagoon up starts a Ray of its own on this "
            "machine."
        ) in said
        serves_and_signs_in(platform.home, said)
        again = Platform(platform.home, starter, said)
        with again.api:
            run = again.run(run_id)
    assert starter.returncode == 0, "\n".join(said)
    assert processes_of(platform.home) == {}
    assert run["status"] == "stopped"
    assert run["reason"] == "The driver received SIGTERM."
    assert run["checkpoints"][-1]["is_final"]
