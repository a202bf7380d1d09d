"""Bodies and answers about accounts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from backend.models.account import Role
from backend.settings import MAX_PASSWORD, MIN_PASSWORD
from backend.text import Name

Password = Annotated[SecretStr, Field(max_length=MAX_PASSWORD)]
NewPassword = Annotated[SecretStr, Field(min_length=MIN_PASSWORD, max_length=MAX_PASSWORD)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Credentials(_Body):
    """A user name with its password."""

    username: str = Field(max_length=200)
    password: Password


class NewUser(_Body):
    """An account to make."""

    username: Name
    password: NewPassword
    role: Role = "member"


class NewApiKey(_Body):
    """An API key to make."""

    name: Name


class UserOut(BaseModel):
    """Who someone is."""

    id: str
    username: str
    role: Literal["admin", "member", "service"]


class SignedIn(BaseModel):
    """The user, and the token of the session."""

    user: UserOut
    token: str


class TicketOut(BaseModel):
    """A one-time sign-in ticket."""

    ticket: str


class ApiKeyOut(BaseModel):
    """An API key, without its secret."""

    id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None = None


class NewApiKeyOut(ApiKeyOut):
    """An API key as it is shown once."""

    token: str
