"""The Celery worker with its beat: it submits, stops and observes Ray jobs."""

import sys

from cli.home import Home
from cli.ports import Ports
from cli.services.api import api_environment, api_url, check_passes
from cli.services.base import Service
from cli.services.ray_head import cluster_address, jobs_url, ray_access


def worker(home: Home, ports: Ports) -> Service:
    """One process. Threads are enough, as every task only waits for HTTP answers."""
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--beat"]
    command += ["--pool", "threads", "--concurrency", "4", "--loglevel", "WARNING"]
    command += ["--without-gossip", "--without-mingle", "--hostname", f"lagoon-{home.key}@%h"]
    command += ["--schedule", str(home.run / "beat-schedule")]
    return Service(
        name="worker",
        title="Celery worker",
        command=command,
        environment=worker_environment(home, ports),
        # It has seen Ray's nodes and told the API: all of worker, beat, broker, Ray and API work.
        is_ready=lambda: check_passes(api_url(ports), "ray"),
    )


def worker_environment(home: Home, ports: Ports) -> dict[str, str]:
    """What ``workers.settings`` reads. The database is not among it."""
    shared = api_environment(home, ports)
    names = ("LAGOON_API_URL", "LAGOON_BROKER_URL", "LAGOON_SERVICE_TOKEN_FILE")
    return {
        **{name: shared[name] for name in names},
        **ray_access(home),
        "LAGOON_RAY_ADDRESS": jobs_url(ports),
        "RAY_ADDRESS": cluster_address(ports),
    }
