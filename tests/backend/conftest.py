"""A real Postgres for the session, migrated once; every test finds its tables empty."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from argon2 import PasswordHasher
from asgi_lifespan_free import noop  # placeholder
