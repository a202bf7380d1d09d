"""How the command and the browser get in: an API key for the one, a one-time link for the other."""

from __future__ import annotations

from urllib.parse import urlencode

import httpx

from cli.client import Api, Credentials, credentials_of, load_credentials
from cli.home import Home
from cli.output import Refusal

ADMIN = "admin"
KEY_NAME = "cli"


def sign_in(
    home: Home, api_url: str, dashboard_url: str, transport: httpx.BaseTransport | None = None
) -> Credentials:
    """The command's credentials: the ones kept in the home folder, or an API key made now.

    The key is made with the administrator's password, which the API left in the home folder at
    its first start. Raises ``Refusal`` when that file is gone or out of date.
    """
    kept = load_credentials(home)
    token = kept.token if kept and _opens(api_url, kept.token, transport) else None
    credentials = Credentials(api_url, dashboard_url, token or _new_key(home, api_url, transport))
    credentials.save(home)
    return credentials


def sign_in_link(api: Api, api_url: str, dashboard_url: str) -> str:
    """A link that signs a browser in, once, within ten minutes."""
    ticket = api.post("/session/tickets")["ticket"]
    return f"{api_url}/api/v1/signin?{urlencode({'ticket': ticket, 'next': dashboard_url})}"


def fresh_link(home: Home, transport: httpx.BaseTransport | None = None) -> tuple[str, str]:
    """The dashboard of a running Lagoon, and a new link that signs a browser in."""
    credentials = credentials_of(home)
    page = credentials.dashboard_url
    with Api(credentials.api_url, credentials.token, transport) as api:
        return page, sign_in_link(api, credentials.api_url, page)


def _opens(api_url: str, token: str, transport: httpx.BaseTransport | None) -> bool:
    try:
        with Api(api_url, token, transport) as api:
            api.get("/me")
    except Refusal:
        return False
    return True


def _new_key(home: Home, api_url: str, transport: httpx.BaseTransport | None) -> str:
    path = home.credentials / "admin-password"
    try:
        password = path.read_text().strip()
    except OSError:
        raise Refusal(
            f"The command cannot sign in: {path} is gone. Put the admin's password back into it; "
            "or, where a command is still signed in, make a key with: lagoon keys create NAME, and "
            "set LAGOON_API_URL and LAGOON_API_KEY for commands without --home."
        ) from None
    with Api(api_url, transport=transport) as api:
        session = api.post("/session", {"username": ADMIN, "password": password})
    with Api(api_url, session["token"], transport) as api:
        token: str = api.post("/api-keys", {"name": KEY_NAME})["token"]
    return token
