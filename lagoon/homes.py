"""The home folder, and the names that follow from it where its path cannot stand: two homes share
none.

One of them is a folder for Unix sockets, which is made here for all who listen on one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path, PurePath

DEFAULT_HOME = "~/.lagoon"


class FolderTaken(Exception):
    """Somebody else's folder stands where one of ours has to be."""


def home_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """The absolute path of the chosen home folder (an option, or LAGOON_HOME), else of
    ``~/.lagoon``."""
    return Path(chosen or DEFAULT_HOME).expanduser().absolute()


def home_key(home: str | os.PathLike[str]) -> str:
    """Eight hexadecimal digits that stand for the path; a relative one is taken as it is."""
    return hashlib.sha256(str(PurePath(home)).encode()).hexdigest()[:8]


def session_cookie(home: str | os.PathLike[str]) -> str:
    """The cookie that signs a browser in: the API sets it and the dashboard reads it.

    Browsers send a host's cookies to every port of it, so that two homes on one host would sign
    each other out if their cookies had one name.
    """
    return f"lagoon_session_{home_key(home)}"


def short_folder(home: str | os.PathLike[str]) -> Path:
    """Where a home's Unix sockets are: their names may have 107 bytes at most, a home's any."""
    root = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    return Path(root) / f"lagoon-{os.getuid()}-{home_key(home)}"


def make_short_folder(home: str | os.PathLike[str]) -> Path:
    """The same, and it is there: under the shared temporary folder, but nobody else's.

    Raises ``FolderTaken`` when somebody else has put something in its place.
    """
    folder = short_folder(home)
    # PostgreSQL refuses to run as root and runs as a user of its own, who must get through.
    mode = 0o711 if os.getuid() == 0 else 0o700
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        found = folder.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            raise FolderTaken(f"{folder} belongs to somebody else: remove it first") from None
    folder.chmod(mode)
    return folder
