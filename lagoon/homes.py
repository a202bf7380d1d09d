"""Names that follow from a home folder, where its path cannot stand: two homes share none."""

from __future__ import annotations

import hashlib
import os
from pathlib import PurePath


def home_key(home: str | os.PathLike[str]) -> str:
    """Eight hexadecimal digits that stand for the path; a relative one is taken as it is."""
    return hashlib.sha256(str(PurePath(home)).encode()).hexdigest()[:8]


def session_cookie(home: str | os.PathLike[str]) -> str:
    """The cookie that signs a browser in: the API sets it and the dashboard reads it.

    Browsers send a host's cookies to every port of it, so that two homes on one host would sign
    each other out if their cookies had one name.
    """
    return f"lagoon_session_{home_key(home)}"
