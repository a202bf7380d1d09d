"""A local Ray head of our own: its ports and its folder, a token for every caller."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path

import psutil

from cli.home import Home
from cli.ports import Ports
from cli.services.base import Service, answers

NODE_ADDRESS = "127.0.0.1"
ON_THIS_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""What makes Ray keep to 127.0.0.1. The name is Ray's, from where it was needed first.

Without it, Ray would put the machine's outside address in the place of 127.0.0.1, and listen on all
of them: others could reach it, and a laptop that changes networks would lose its cluster.
"""
GIB = 1024**3


def ray_head(home: Home, ports: Ports) -> Service:
    """The head node with all CPUs (and GPUs) of the machine, and its Jobs API."""
    folder = home.short / "ray"
    _remove_old_sessions(folder)
    token = home.secret("ray-token")
    flags = {
        "node-ip-address": NODE_ADDRESS,
        "port": ports.ray_gcs,
        "dashboard-host": "127.0.0.1",
        "dashboard-port": ports.ray_jobs,
        "dashboard-agent-listen-port": ports.ray_agent,
        "dashboard-agent-grpc-port": ports.ray_agent_grpc,
        "runtime-env-agent-port": ports.ray_runtime_env,
        "object-manager-port": ports.ray_objects,
        "node-manager-port": ports.ray_node,
        "metrics-export-port": ports.ray_metrics,
        "ray-client-server-port": ports.ray_client,
        "min-worker-port": ports.ray_worker_first,
        "max-worker-port": ports.ray_worker_last,
        "object-store-memory": object_store_bytes(psutil.virtual_memory().total, _shm_bytes()),
        "temp-dir": folder,
    }
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--disable-usage-stats",
    ]
    command += [f"--{name}={value}" for name, value in flags.items()]
    headers = {"Authorization": f"Bearer {token}"}
    return Service(
        name="ray",
        title="Ray",
        command=command,
        environment={
            **ray_access(home),
            "AUTOSCALER_METRIC_PORT": str(ports.ray_autoscaler_metrics),
            "DASHBOARD_METRIC_PORT": str(ports.ray_dashboard_metrics),
            # Time for a driver to say goodbye before its job is killed.
            "RAY_JOB_STOP_WAIT_TIME_S": "20",
        },
        is_ready=lambda: answers(f"{jobs_url(ports)}/api/jobs/", headers),
        ready_seconds=120.0,
        stop_seconds=15.0,
    )


def ray_access(home: Home) -> dict[str, str]:
    """The variables with which a process may talk to a Ray of this home."""
    home.secret("ray-token")
    return {
        **ON_THIS_MACHINE,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home.credentials / "ray-token"),
    }


def use_ray(home: Home, environment: MutableMapping[str, str]) -> str:
    """Prepare ``environment`` for a Ray without a platform, and say which one it will be.

    A cluster that ``RAY_ADDRESS`` names is joined as it is; a Ray of its own keeps to this machine
    and asks for the home's token. Raises ``Refusal`` when the home folder cannot be written.
    """
    address = environment.get("RAY_ADDRESS")
    if address:
        return f"Joins the Ray cluster at RAY_ADDRESS={address}."
    home.create()
    environment.update(ray_access(home))
    return "Starts a Ray of its own on this machine, for this run alone."


def jobs_url(ports: Ports) -> str:
    """Where the Jobs API answers."""
    return f"http://127.0.0.1:{ports.ray_jobs}"


def cluster_address(ports: Ports) -> str:
    """What a process gives to ``ray.init`` as ``RAY_ADDRESS``."""
    return f"{NODE_ADDRESS}:{ports.ray_gcs}"


def object_store_bytes(memory_bytes: int, shm_bytes: int) -> int:
    """Room for weights on their way: a tenth of the memory, at most 4 GiB, within shared memory."""
    return max(min(memory_bytes // 10, 4 * GIB, int(shm_bytes * 0.6)), 128 * 1024**2)


def _shm_bytes() -> int:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return GIB
    return found.f_frsize * found.f_bavail


def _remove_old_sessions(folder: Path) -> None:
    """Ray keeps the files of every session for ever; those of the last one are enough."""
    sessions = sorted(folder.glob("session_2*"), key=lambda path: path.name)
    for session in sessions[:-1]:
        shutil.rmtree(session, ignore_errors=True)
