"""HTTP to the API, with the credentials of the home folder or of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from cli.home import Home, write_private
from cli.output import Refusal

PAGE_SIZE = 200


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the API is, and the key that opens it."""

    api_url: str
    dashboard_url: str
    token: str

    def save(self, home: Home) -> None:
        """Keep them for later commands, readable by their owner alone."""
        fields = {name: getattr(self, name) for name in ("api_url", "dashboard_url", "token")}
        write_private(home.credentials / "cli.json", json.dumps(fields, indent=2) + "\n")


def load_credentials(home: Home) -> Credentials | None:
    """Those that the home folder's own ``lagoon up`` left there; None without."""
    try:
        return Credentials(**json.loads((home.credentials / "cli.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


class Api:
    """The API's resources. Every refusal and every failure is a ``Refusal`` in words."""

    def __init__(
        self, api_url: str, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=f"{api_url}/api/v1",
            headers=headers,
            timeout=30.0,
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON at ``path``; parameters that are None are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        return self._send("GET", path, params=given)

    def post(self, path: str, body: Any = None, idempotency_key: str | None = None) -> Any:
        """The answer to a POST. With a key, a second call with the same body changes nothing."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", path, json=body, headers=headers)

    def patch(self, path: str, body: Any) -> Any:
        """The answer to a PATCH."""
        return self._send("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        """Delete what is at ``path``; the answer, if there is one."""
        return self._send("DELETE", path)

    def pages(self, path: str, limit: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """The items of a list, page after page, up to ``limit``."""
        cursor, left = None, limit
        while left is None or left > 0:
            size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
            page = self.get(path, limit=size, cursor=cursor, **params)
            yield from page["items"]
            cursor = page.get("next")
            left = None if left is None else left - len(page["items"])
            if cursor is None:
                return

    def _send(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise Refusal(
                f"The API at {self._http.base_url} does not answer ({type(error).__name__}). Is "
                "Lagoon up? Start it with: lagoon up"
            ) from None
        if answer.is_success:
            return answer.json() if answer.content else None
        raise Refusal(in_words(answer))


def credentials_of(home: Home) -> Credentials:
    """The home folder's credentials. Raises ``Refusal`` where Lagoon was never up."""
    credentials = load_credentials(home)
    if credentials is None:
        raise Refusal(
            f"No Lagoon was started with the home folder {home.root}. Start it with: lagoon up, or "
            "name another with --home DIR, or leave --home out and set LAGOON_API_URL and "
            "LAGOON_API_KEY."
        )
    return credentials


def _from_environment() -> Credentials | None:
    """Those of ``LAGOON_API_URL`` and ``LAGOON_API_KEY``; None unless both are set."""
    url, token = os.environ.get("LAGOON_API_URL"), os.environ.get("LAGOON_API_KEY")
    if not url or not token:
        return None
    return Credentials(url.rstrip("/"), os.environ.get("LAGOON_DASHBOARD_URL", ""), token)


def connect(home: Home, transport: httpx.BaseTransport | None = None) -> Api:
    """The API that a command is for, signed in: the home folder's, unless nobody named that folder
    and the environment names an API. Raises ``Refusal`` where Lagoon was never up.
    """
    credentials = (_from_environment() if home.is_implied else None) or credentials_of(home)
    return Api(credentials.api_url, credentials.token, transport)


def in_words(answer: httpx.Response) -> str:
    """A refusal (RFC 9457) as sentences: what is wrong, then one line per field."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return f"The API answered {answer.status_code} {answer.reason_phrase}."
    lines = [_sentence(problem.get("detail") or problem.get("title") or answer.reason_phrase)]
    for error in problem.get("errors") or []:
        fields = ", ".join(error.get("fields") or [])
        lines.append(f"  {fields}: {error.get('message')}" if fields else f"  {error['message']}")
    if answer.status_code >= 500 and problem.get("request_id"):
        lines.append(f"  Request {problem['request_id']}; the API's log says more.")
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
