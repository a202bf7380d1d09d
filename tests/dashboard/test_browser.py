"""The dashboard in Chromium, on top of the fake API: what only a browser can show."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from dashboard import serve
from tests.dashboard import browser, fake_server
from tests.dashboard.fake_api import PASSWORD, FakeApi

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    browser.needs_chromium,
]


@contextmanager
def dashboard_on(fake: FakeApi, folder: Path) -> Iterator[str]:
    """The dashboard's URL, with ``fake`` behind it; both processes end with the block."""
    port = browser.free_port()
    url = f"http://127.0.0.1:{port}"
    server = fake_server.serve(fake, 0, url)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api_url = f"http://127.0.0.1:{server.server_port}"
    variables = serve.environment(api_url=api_url, dashboard_url=url)
    with (folder / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(
            serve.command(port), env=os.environ | variables, cwd=folder, stdout=log, stderr=log
        )
        try:
            transport = httpx.HTTPTransport(retries=8)
            with httpx.Client(transport=transport, timeout=30) as client:
                assert client.get(f"{url}/_stcore/health").is_success
            yield url
        finally:
            process.terminate()
            process.wait(10)
            server.shutdown()
            thread.join(10)
            server.server_close()


def test_sign_in_survives_a_refresh_and_a_run_can_be_stopped(tmp_path: Path) -> None:
    fake = FakeApi()
    with dashboard_on(fake, tmp_path) as url, browser.open_browser() as page:
        browser.sign_in_by_form(page, f"{url}/run?run=r7k2m9qd&tab=config", "admin", PASSWORD)
        expect(page.locator("h1.lg-title")).to_contain_text("grpo-calculator")
        assert page.url == f"{url}/run?run=r7k2m9qd&tab=config"
        page.reload()
        expect(page.locator("h1.lg-title")).to_contain_text("grpo-calculator")

        fake.is_down = True
        expect(page.locator(".lg-notice.bad")).to_contain_text("Nothing answers")
        expect(page.locator("h1.lg-title")).to_contain_text("grpo-calculator")
        fake.is_down = False
        expect(page.locator(".lg-notice.bad")).to_have_count(0)

        page.get_by_role("button", name="Stop", exact=False).first.click()
        page.get_by_role("button", name="Stop grpo-calculator").click()
        expect(page.locator("h1.lg-title .lg-pill")).to_have_text("stopping")
        assert fake.runs["r7k2m9qd"]["stop_requested_by"] == "admin"

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("User name")).to_be_visible()
        page.reload()
        expect(page.get_by_label("User name")).to_be_visible()
