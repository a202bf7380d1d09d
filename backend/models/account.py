"""People and their credentials. Of a credential only a hash is stored."""

from datetime import datetime
from typing import Literal

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from backend.models.base import Base

Role = Literal["admin", "member"]


class User(Base):
    """A person with a password."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str] = mapped_column(unique=True)
    password_hash: Mapped[str]
    role: Mapped[str]
    created_at: Mapped[datetime]


class SignIn(Base):
    """A signed-in browser or client, until it expires or signs out."""

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[bytes]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class Ticket(Base):
    """A link that signs a browser in, once."""

    __tablename__ = "signin_tickets"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[bytes]
    expires_at: Mapped[datetime]


class SignInAllowance(Base):
    """Whose password is being tried, or from where, and when that is forgotten."""

    __tablename__ = "sign_in_allowances"

    subject: Mapped[str] = mapped_column(primary_key=True)
    whole_at: Mapped[datetime]


class ApiKey(Base):
    """A named credential for scripts and the CLI."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    token_hash: Mapped[bytes]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
