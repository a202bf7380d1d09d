"""Chromium for the tests: start it, sign in by a ticket link, look at a page."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MS = 20_000


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="Chromium is not installed; `make test` installs it where it can",
)


def free_port() -> int:
    """A TCP port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def open_browser(*, width: int = 1440, height: int = 900) -> Iterator[Page]:
    """A page of a fresh Chromium, with no cookies; closed at the end, whatever happens."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), headless=True
        )
        try:
            context = browser.new_context(
                viewport={"width": width, "height": height}, timezone_id="Europe/Berlin"
            )
            context.set_default_timeout(TIMEOUT_MS)
            yield context.new_page()
        finally:
            browser.close()


def sign_in_by_link(page: Page, link: str) -> None:
    """Follow a one-time sign-in link and wait until the dashboard knows the viewer."""
    page.goto(link)
    page.locator(".lg-user").wait_for(state="attached")


def sign_in_by_form(page: Page, dashboard_url: str, username: str, password: str) -> None:
    """Type name and password into the dashboard's own form."""
    page.goto(dashboard_url)
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".lg-user").wait_for(state="attached")


def settle(page: Page, pause_ms: int = 600) -> None:
    """Wait until Streamlit has nothing left to draw."""
    page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for()
    page.wait_for_timeout(pause_ms)  # Plotly draws after the script has ended.


def screenshot(page: Page, path: Path, *, whole_page: bool = True) -> Path:
    """A picture of the page at its full height, so that nothing hides behind a scroll bar."""
    settle(page)
    if whole_page:
        height = page.evaluate(
            "Math.max(...[...document.querySelectorAll('[data-testid=stMain]')]"
            ".map(part => part.scrollHeight))"
        )
        size = page.viewport_size or {"width": 1440, "height": 900}
        page.set_viewport_size({"width": size["width"], "height": min(int(height) + 20, 6000)})
        page.wait_for_timeout(500)
        page.screenshot(path=str(path))
        page.set_viewport_size(size)
    else:
        page.screenshot(path=str(path))
    return path
