"""The dashboard: Streamlit, which talks to the API alone."""

from cli.home import Home
from cli.ports import Ports
from cli.services.api import api_url, dashboard_url
from cli.services.base import Service, answers
from dashboard.serve import command, environment


def dashboard(home: Home, ports: Ports) -> Service:
    """The dashboard on the loopback address."""
    return Service(
        name="dashboard",
        title="dashboard",
        command=command(ports.dashboard),
        environment=environment(api_url=api_url(ports), dashboard_url=dashboard_url(ports)),
        is_ready=lambda: answers(f"{dashboard_url(ports)}/_stcore/health"),
        stop_seconds=3.0,
    )
