"""The home folder, and the names that follow from it where its path cannot stand: two homes share
none."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePath

DEFAULT_HOME = "~/.lagoon"


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
