"""What one API process holds: made by ``create_app``, handed to endpoints and periodic tasks."""

from dataclasses import dataclass
from datetime import datetime

from argon2 import PasswordHasher

from backend.clock import Clock
from backend.database import Database
from backend.queue import TaskQueue
from backend.settings import Settings


@dataclass(slots=True)
class Context:
    """The seams of the API: each is an argument of ``create_app``."""

    settings: Settings
    database: Database
    queue: TaskQueue
    clock: Clock
    passwords: PasswordHasher
    service_token_hash: bytes
    listening_since: datetime
    """When this process began to take events: a silence before counts against nobody."""
