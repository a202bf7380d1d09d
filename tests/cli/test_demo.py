"""The demo against the real API and the presets that are shipped."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cli.client import Api
from cli.demo import RUNS, TITLE, make_demo
from cli.home import Home
from cli.output import Refusal
from tests.backend.api import PASSWORD, running_api, served
from tests.cli.fake_api import signed_in_home

PRESETS = Path(__file__).resolve().parents[2] / "presets"


def signed_in(url: str) -> Api:
    with Api(url) as api:
        token = api.post("/session", {"username": "ada", "password": PASSWORD})["token"]
    return Api(url, token)


def made_again_and_again(url: str, home: Home) -> tuple[list[bool], list[Any], list[Any]]:
    """Whether three calls made the demo, the last with its mark lost; and what there is then."""
    with signed_in(url) as api:
        made = [make_demo(home, api), make_demo(home, api)]
        (home.root / "demo-made").unlink()
        made.append(make_demo(home, api))
        return made, list(api.pages("/experiments")), list(api.pages("/runs"))


async def test_the_demo_is_made_once_of_the_presets_that_are_shipped(
    database_url: str, tmp_path: Path
) -> None:
    home = signed_in_home(tmp_path)
    async with running_api(database_url, tmp_path / "api", presets_dir=PRESETS) as api:
        await api.user("ada")
        async with served(api.app) as url:
            made, experiments, runs = await asyncio.to_thread(made_again_and_again, url, home)
    assert made == [True, False, True]
    # The third call's requests were answered with what the first had made.
    assert [experiment["title"] for experiment in experiments] == [TITLE]
    assert sorted(run["name"] for run in runs) == sorted(name for name, _ in RUNS)
    assert {run["experiment_id"] for run in runs} == {experiments[0]["id"]}


def refused(url: str, home: Home) -> list[Any]:
    """What there is after the demo was refused."""
    with signed_in(url) as api:
        with pytest.raises(Refusal, match=r"^The API has no preset called es-sudoku4\.$"):
            make_demo(home, api)
        return list(api.pages("/experiments"))


async def test_a_missing_preset_is_one_line_and_nothing_is_made(
    database_url: str, tmp_path: Path
) -> None:
    shelf = tmp_path / "presets"
    shelf.mkdir()
    (shelf / "grpo-calculator.yaml").write_text((PRESETS / "grpo-calculator.yaml").read_text())
    home = signed_in_home(tmp_path)
    async with running_api(database_url, tmp_path / "api", presets_dir=shelf) as api:
        await api.user("ada")
        async with served(api.app) as url:
            assert await asyncio.to_thread(refused, url, home) == []
    assert not (home.root / "demo-made").exists()


def test_the_demos_presets_are_files() -> None:
    assert [preset for _, preset in RUNS if not (PRESETS / f"{preset}.yaml").is_file()] == []
