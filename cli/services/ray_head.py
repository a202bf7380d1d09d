"""A local Ray head of our own: its ports and its folder, a token for every caller."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import psutil

from cli.home import Home
from cli.ports import Ports
from cli.services.base import Service, answers

# A loopback address that Ray keeps: it would replace 127.0.0.1 by the machine's outside address,
# and a laptop that changes networks would lose its cluster.
NODE_ADDRESS = "127.0.0.2"
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
    """The variables with which a process may talk to the head."""
    home.secret("ray-token")
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home.credentials / "ray-token"),
    }


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
