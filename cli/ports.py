"""The TCP ports of a home folder: one block of a hundred, chosen by the folder's path.

The same folder gets the same ports every time; two folders that fall on one block, and programs
that sit on its ports, make the later one move to another block, which it then remembers.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO

from cli.home import Home
from cli.output import Refusal

# Below the range that Linux hands out for outgoing connections (from 32768).
FIRST_PORT = 20000
BLOCK_SIZE = 100
NUM_BLOCKS = 100
NUM_WORKER_PORTS = 64


@dataclass(frozen=True, slots=True)
class Ports:
    """Every port that Lagoon listens on. Ray's workers take the range, ends included."""

    api: int
    dashboard: int
    valkey: int
    ray_gcs: int
    ray_jobs: int
    ray_agent: int
    ray_agent_grpc: int
    ray_runtime_env: int
    ray_objects: int
    ray_node: int
    ray_metrics: int
    ray_client: int
    ray_autoscaler_metrics: int
    ray_dashboard_metrics: int
    ray_worker_first: int
    ray_worker_last: int

    def all(self) -> list[int]:
        """Every single port, the worker range spelled out."""
        singles = [getattr(self, field.name) for field in fields(self)[:-2]]
        return [*singles, *range(self.ray_worker_first, self.ray_worker_last + 1)]


def ports_of_block(block: int) -> Ports:
    """The ports of a block: single ones first, Ray's workers from its middle on."""
    base = FIRST_PORT + block * BLOCK_SIZE
    singles = range(base, base + len(fields(Ports)) - 2)
    first = base + BLOCK_SIZE - NUM_WORKER_PORTS
    return Ports(*[*singles, first, first + NUM_WORKER_PORTS - 1])


def candidates(home: Home) -> Iterator[int]:
    """Blocks to try: the one last used, then the path's own, then those after it."""
    own = int(home.key, 16) % NUM_BLOCKS
    last = _remembered(home)
    yield own if last is None else last
    for offset in range(NUM_BLOCKS):
        block = (own + offset) % NUM_BLOCKS
        if block != last:
            yield block


def choose_ports(
    blocks: Iterator[int],
    *,
    api: int | None,
    dashboard: int | None,
    is_free: Callable[[int], bool],
    claim: Callable[[int], bool],
    is_claimed: Callable[[int], bool],
) -> tuple[int, Ports]:
    """The first block that is wholly free and can be claimed, and its ports.

    ``api`` and ``dashboard`` replace the block's own. Raises ``Refusal`` when one of them is
    taken, not open to this user, or in a block that another Lagoon has claimed (``is_claimed``),
    and when no block is free.
    """
    for option, port in (("--api-port", api), ("--dashboard-port", dashboard)):
        if port is None:
            continue
        trouble = _trouble_with(port, is_free)
        if trouble is None and _is_anothers(port, is_claimed):
            trouble = "belongs to another Lagoon that is up on this machine"
        if trouble is not None:
            raise Refusal(
                f"Port {port} {trouble}. Nothing was started. Choose another with {option} N, or "
                "leave it out."
            )
    if api is not None and api == dashboard:
        raise Refusal(f"--api-port and --dashboard-port are both {api}. They must differ.")
    for block in blocks:
        ports = ports_of_block(block)
        ports = replace(ports, api=api or ports.api, dashboard=dashboard or ports.dashboard)
        wanted = ports.all()
        is_usable = not any(_trouble_with(port, is_free) for port in wanted)
        if len(set(wanted)) == len(wanted) and is_usable and claim(block):
            return block, ports
    raise Refusal(
        f"No {BLOCK_SIZE} neighbouring ports are free between {FIRST_PORT} and "
        f"{FIRST_PORT + NUM_BLOCKS * BLOCK_SIZE}. Nothing was started."
    )


def _trouble_with(port: int, is_free: Callable[[int], bool]) -> str | None:
    """Why a port cannot be used, or None."""
    try:
        return None if is_free(port) else "is taken by another program"
    except PermissionError:
        return "is not open to this user; ports below 1024 are usually the system's"


def _is_anothers(port: int, is_claimed: Callable[[int], bool]) -> bool:
    """True for a port that another Lagoon may use at any time: Ray's workers come and go."""
    block = (port - FIRST_PORT) // BLOCK_SIZE
    is_in_use = 0 <= block < NUM_BLOCKS and port in ports_of_block(block).all()
    return is_in_use and is_claimed(block)


def is_port_free(port: int) -> bool:
    """True when nothing listens on ``port``, on any address.

    Raises ``PermissionError`` when this user may not listen there.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without this a port whose last connection has just been closed counts as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except PermissionError:
            raise
        except OSError:
            return False
    return True


class BlockClaims:
    """Locks on blocks, held until it is closed, so that two homes cannot race for one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[IO[str]] = []

    def __enter__(self) -> BlockClaims:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._held:
            file.close()

    def is_claimed(self, block: int) -> bool:
        """True when a Lagoon holds the block now; False also where that cannot be seen."""
        try:
            file = self._path(block).open("a")
        except OSError:
            return False
        with file:
            try:
                # Shared, so that two who only look do not take each other for a holder.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def claim(self, block: int) -> bool:
        """True when the block is now ours."""
        try:
            file = self._path(block).open("a")
        except OSError:  # somebody else's file of that name
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._held.append(file)
        return True

    def _path(self, block: int) -> Path:
        return self._folder / f"lagoon-{os.getuid()}-ports-{block}.lock"


def remember(home: Home, block: int, ports: Ports) -> None:
    """Write the choice to ``ports.json``, where the next start and people look for it."""
    text = json.dumps({"block": block, **asdict(ports)}, indent=2)
    (home.root / "ports.json").write_text(text + "\n")


def _remembered(home: Home) -> int | None:
    try:
        block = json.loads((home.root / "ports.json").read_text())["block"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return block if isinstance(block, int) and 0 <= block < NUM_BLOCKS else None
