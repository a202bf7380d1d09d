"""Two whole platforms on one machine, from two home folders: they share nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.test_up import lagoon, processes_of, up, without_building
from tests.e2e.platform import Platform
from tests.e2e.runs import small_grpo

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Platform, Platform]]:
    """Two platforms, started at the same time, as the race for ports wants it."""
    homes = [tmp_path / "one", tmp_path / "two"]
    with ExitStack() as stack:
        for home in homes:
            without_building(home)
        with ThreadPoolExecutor() as starters:
            started = list(starters.map(stack.enter_context, map(up, homes)))
        one, two = (Platform(home, *start) for home, start in zip(homes, started, strict=True))
        stack.enter_context(one.api)
        stack.enter_context(two.api)
        yield one, two


def answers(platform: Platform) -> bool:
    """True when the platform is ready and says its version."""
    urls = (f"{platform.api_url}/{name}" for name in ("readyz", "version"))
    return all(httpx.get(url, timeout=10, trust_env=False).is_success for url in urls)


def runs_of(platform: Platform) -> list[str]:
    items = platform.api.get("/runs").json()["items"]
    return [item["id"] for item in items]


def test_two_stacks_run_side_by_side_and_one_outlives_the_other(
    both: tuple[Platform, Platform], tmp_path: Path
) -> None:
    one, two = both
    assert one.api_url != two.api_url
    assert answers(one)
    assert answers(two)

    # One browser, which sends both stacks the cookies of both.
    with httpx.Client(timeout=10, trust_env=False) as browser:
        for platform in both:
            assert browser.get(platform.link).status_code == 303
        for platform in both:
            assert browser.get(f"{platform.api_url}/api/v1/me").json()["username"] == "admin"

    # No model is needed to see whose driver ran: each fails for want of one.
    config = small_grpo(tmp_path / "no model here")
    first, second = one.create(config, "first"), two.create(config, "second")
    for platform, run_id in ((one, first), (two, second)):
        assert platform.ended(run_id)["reason"].startswith("The model cannot be used")
        assert runs_of(platform) == [run_id]
    assert one.api.get(f"/runs/{second}").status_code == 404

    assert "Nothing is left running" in lagoon(one.home, "down").stdout
    assert processes_of(one.home) == {}
    assert answers(two)
    assert runs_of(two) == [second]
    assert "Nothing is left running" in lagoon(two.home, "down").stdout
    assert processes_of(two.home) == {}
