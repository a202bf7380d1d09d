"""Where the dashboard finds the API and what its cookie is called, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from lagoon.homes import home_folder, session_cookie
from lagoon.service_settings import web_url


@dataclass(frozen=True, slots=True)
class Settings:
    """The three addresses the dashboard knows, all without a trailing slash, and the cookie."""

    api_url: str
    """The API as this process reaches it."""
    public_api_url: str
    """The API as the viewer's browser reaches it: sign-in goes there for its cookie."""
    dashboard_url: str
    """The dashboard as the browser reaches it: where sign-in comes back to."""
    session_cookie: str
    """The cookie that the API signs a browser in with. It follows from the home folder, which must
    be written as the API has it."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read ``LAGOON_API_URL``, ``LAGOON_PUBLIC_API_URL``, ``LAGOON_DASHBOARD_URL`` and
        ``LAGOON_HOME``; their defaults are those of the API.

        Raises ``ValueError``, naming the variable, for one that cannot be an address.
        """

        def address(name: str, default: str) -> str:
            try:
                return web_url(environment.get(name, default))
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None

        api_url = address("LAGOON_API_URL", "http://127.0.0.1:8000")
        return cls(
            api_url=api_url,
            public_api_url=address("LAGOON_PUBLIC_API_URL", api_url),
            dashboard_url=address("LAGOON_DASHBOARD_URL", "http://127.0.0.1:8501"),
            session_cookie=session_cookie(home_folder(environment.get("LAGOON_HOME"))),
        )
