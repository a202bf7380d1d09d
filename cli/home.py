"""The home folder: everything that one Lagoon on one machine keeps, and where."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cli.output import Refusal
from lagoon.homes import FolderTaken, home_folder, home_key, make_short_folder, short_folder


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder by its absolute path. Two of them share nothing."""

    root: Path
    is_implied: bool = field(default=False, compare=False)
    """True when nobody named it with --home: then LAGOON_API_URL and LAGOON_API_KEY may lead to
    another platform."""

    @property
    def key(self) -> str:
        """Eight hexadecimal digits that stand for the path, where names must be short."""
        return home_key(self.root)

    @property
    def credentials(self) -> Path:
        """Secrets, each in a file of mode 0600."""
        return self.root / "credentials"

    @property
    def run(self) -> Path:
        """What is only true while Lagoon is up: process ids, locks."""
        return self.root / "run"

    @property
    def stack_file(self) -> Path:
        """The processes of the current, or the last, start."""
        return self.run / "processes.json"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def short(self) -> Path:
        """A short path for Unix sockets, whose names may have 107 bytes at most."""
        return short_folder(self.root)

    def create(self) -> None:
        """Make the folders; only the owner may look into them.

        Raises ``Refusal`` when the folder cannot be written.
        """
        try:
            for folder in (self.root, self.credentials, self.run, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.credentials.chmod(0o700)
            with tempfile.TemporaryFile(dir=self.run):
                pass
        except OSError as error:
            raise Refusal(
                f"The home folder {self.root} cannot be written ({error.strerror}). Nothing was "
                "started. Choose another with --home DIR."
            ) from None

    def create_short(self) -> None:
        """Make the folder for sockets. Raises ``Refusal`` when somebody else has put it there."""
        try:
            make_short_folder(self.root)
        except FolderTaken as error:
            raise Refusal(f"{error}. Nothing was started.") from None

    def secret(self, name: str, *, prefix: str = "", num_bytes: int = 32) -> str:
        """The secret ``name``, made at random when it is asked for the first time."""
        path = self.credentials / name
        if not path.exists():
            write_private(path, prefix + secrets.token_hex(num_bytes))
        return path.read_text().strip()


class HomeLock:
    """Held by the one ``lagoon up`` of a home folder for as long as it lives."""

    def __init__(self, home: Home) -> None:
        self._file = (home.run / "lock").open("a")

    def __enter__(self) -> HomeLock:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self) -> bool:
        """True when the lock is now ours; False when another ``lagoon up`` holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def find_home(option: Path | None) -> Home:
    """The home folder of ``--home``, else of LAGOON_HOME, else ``~/.lagoon``."""
    root = home_folder(option or os.environ.get("LAGOON_HOME"))
    return Home(root, is_implied=option is None)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(name, path)
