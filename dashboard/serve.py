"""How the dashboard's process is started: its command line and its environment.

Everything Streamlit is told stands here, so that no configuration file in a home or working
folder is needed, and none is missed.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from dashboard import palette

APP = Path(__file__).with_name("app.py")


def options(port: int, address: str = "127.0.0.1") -> dict[str, str]:
    """Streamlit's options: where it listens, how it behaves, how it looks."""
    return {
        "server.address": address,
        "server.port": str(port),
        "server.headless": "true",
        "server.enableCORS": "true",
        "server.enableXsrfProtection": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "server.maxWidgetStateSize": "4",
        "browser.gatherUsageStats": "false",
        "browser.serverAddress": address,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "theme.base": "light",
        "theme.primaryColor": palette.TEAL,
        "theme.backgroundColor": palette.PAPER,
        "theme.secondaryBackgroundColor": palette.CARD,
        "theme.textColor": palette.INK,
        "theme.linkColor": palette.TEAL,
        "theme.borderColor": palette.LINE,
        "theme.showWidgetBorder": "true",
        "theme.baseRadius": "10px",
        "theme.buttonRadius": "10px",
        "theme.baseFontSize": "15",
        "theme.codeFontSize": "0.85rem",
        "theme.sidebar.backgroundColor": palette.DEEP,
        "theme.sidebar.secondaryBackgroundColor": "#12465c",
        "theme.sidebar.textColor": "#e6f1f3",
        "theme.sidebar.linkColor": "#9fdcd6",
        "theme.sidebar.borderColor": "#1d4a5e",
    }


def command(port: int, address: str = "127.0.0.1") -> list[str]:
    """The command line that serves the dashboard on ``address:port``."""
    flags = [f"--{name}={value}" for name, value in options(port, address).items()]
    return [sys.executable, "-m", "streamlit", "run", str(APP), *flags]


def environment(
    *, api_url: str, dashboard_url: str, public_api_url: str | None = None
) -> Mapping[str, str]:
    """The variables the dashboard reads, to be added to the process's environment."""
    return {
        "LAGOON_API_URL": api_url,
        "LAGOON_PUBLIC_API_URL": public_api_url or api_url,
        "LAGOON_DASHBOARD_URL": dashboard_url,
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    }
