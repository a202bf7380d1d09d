"""The dashboard's one file with HTTP in it: the API's answers as records, its refusals as errors.

The connection pool is shared by all viewers and therefore keeps no cookies; each ``Api`` carries
one viewer's own token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast

import httpx

from dashboard import queue_records, records

PREFIX = "/api/v1"

Parameters = Mapping[str, str | int | list[str] | None]


@dataclass(frozen=True, slots=True)
class FieldError:
    """What the API found wrong with one field, or with two that clash."""

    fields: tuple[str, ...]
    message: str
    hint: str | None = None


class ApiError(Exception):
    """Something kept the API from answering. The message is a sentence for the viewer."""


class ApiUnreachable(ApiError):
    """Nothing answers at the API's address, or it broke off."""


class ApiProblem(ApiError):
    """The API answered with a problem (RFC 9457)."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        errors: tuple[FieldError, ...] = (),
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.errors = errors
        self.request_id = request_id


class NotSignedIn(ApiProblem):
    """401: there is no session, or it has ended."""


class NotFound(ApiProblem):
    """404: no such thing, or not for this viewer."""


class Unavailable(ApiProblem):
    """5xx: the API is there, but cannot do its work."""


class Api:
    """The API as one viewer sees it.

    Every method raises ``ApiUnreachable`` or an ``ApiProblem`` when it gets no good answer.
    """

    def __init__(self, http: httpx.Client, token: str | None = None) -> None:
        self._http = http
        self._token = token
        self._etags: dict[str, tuple[str, records.RunDetail]] = {}

    @property
    def base_url(self) -> str:
        """Where the API is."""
        return str(self._http.base_url).rstrip("/")

    def sign_in_ticket(self, username: str, password: str) -> str:
        """A one-time ticket that the browser exchanges for its cookie."""
        answer = self._json(
            "POST", "/session/tickets", body={"username": username, "password": password}
        )
        return str(answer["ticket"])

    def sign_out(self) -> None:
        """End the session, everywhere it is open."""
        self._send("DELETE", "/session")

    def me(self) -> records.User:
        """The viewer."""
        return cast(records.User, self._json("GET", "/me"))

    def schema(self) -> records.Schema:
        """The JSON schema of a run configuration."""
        return self._json("GET", "/schemas/run-config")

    def catalogue(self) -> records.Catalogue:
        """Methods, environments, metrics and models."""
        return cast(records.Catalogue, self._json("GET", "/catalogue"))

    def presets(self) -> list[records.Preset]:
        """Configurations to start from."""
        return cast(list[records.Preset], self._json("GET", "/presets")["items"])

    def validate(self, config: records.Config) -> records.Config:
        """The configuration with all its defaults; a 422 problem names the fields at fault."""
        answer = self._json("POST", "/runs/validate", body={"config": config})
        return cast(records.Config, answer["config"])

    def experiments(self) -> list[records.Experiment]:
        """The newest experiments, up to 200."""
        answer = self._json("GET", "/experiments", {"limit": 200})
        return cast(list[records.Experiment], answer["items"])

    def experiment(self, experiment_id: str) -> records.Experiment:
        """One experiment."""
        return cast(records.Experiment, self._json("GET", f"/experiments/{experiment_id}"))

    def create_experiment(self, title: str, notes: str = "") -> records.Experiment:
        """A new experiment."""
        body = {"title": title, "notes": notes}
        return cast(records.Experiment, self._json("POST", "/experiments", body=body))

    def update_experiment(self, experiment_id: str, title: str, notes: str) -> None:
        """Change an experiment's title and notes."""
        body = {"title": title, "notes": notes}
        self._json("PATCH", f"/experiments/{experiment_id}", body=body)

    def runs(
        self, *, experiment_id: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[records.RunSummary]:
        """Runs, newest first."""
        parameters: Parameters = {
            "experiment_id": experiment_id,
            "status": status,
            "limit": limit,
        }
        return cast(list[records.RunSummary], self._json("GET", "/runs", parameters)["items"])

    def create_run(
        self,
        name: str,
        config: records.Config,
        *,
        experiment_id: str | None,
        idempotency_key: str,
    ) -> records.RunDetail:
        """Start a run. The same key twice makes one run."""
        body: dict[str, Any] = {"name": name, "config": config}
        if experiment_id:
            body["experiment_id"] = experiment_id
        answer = self._json(
            "POST", "/runs", body=body, headers={"Idempotency-Key": idempotency_key}
        )
        return cast(records.RunDetail, answer)

    def run(self, run_id: str) -> records.RunDetail:
        """One run. While nothing has changed the API answers 304 and the last answer is reused."""
        known = self._etags.get(run_id)
        headers = {"If-None-Match": known[0]} if known else {}
        response = self._send("GET", f"/runs/{run_id}", headers=headers)
        if response.status_code == httpx.codes.NOT_MODIFIED and known:
            return known[1]
        detail = cast(records.RunDetail, _parsed(response))
        self._etags = {run_id: (response.headers.get("ETag", ""), detail)}
        return detail

    def stop_run(self, run_id: str) -> records.RunDetail:
        """Ask a run to stop."""
        return cast(records.RunDetail, self._json("POST", f"/runs/{run_id}/stop"))

    def controls(self, run_id: str) -> records.Controls:
        """What may be changed of a run while it goes on, and what was."""
        return cast(records.Controls, self._json("GET", f"/runs/{run_id}/controls"))

    def change_run(
        self, run_id: str, settings: Mapping[str, records.Value], idempotency_key: str
    ) -> records.Controls:
        """Change settings of a run that goes on. The same key twice makes one change."""
        body = {"settings": dict(settings)}
        headers = {"Idempotency-Key": idempotency_key}
        path = f"/runs/{run_id}/controls"
        return cast(records.Controls, self._json("POST", path, body=body, headers=headers))

    def resume_run(self, run_id: str, checkpoint_id: int | None) -> records.RunDetail:
        """Have a run go on, from a checkpoint or from the newest."""
        body = {"checkpoint_id": checkpoint_id}
        return cast(records.RunDetail, self._json("POST", f"/runs/{run_id}/resume", body=body))

    def fork_run(
        self, run_id: str, checkpoint_id: int, name: str, config: records.Config
    ) -> records.RunDetail:
        """A new run that begins with a run's checkpoint."""
        body = {"checkpoint_id": checkpoint_id, "name": name, "config": config}
        return cast(records.RunDetail, self._json("POST", f"/runs/{run_id}/fork", body=body))

    def queue(self) -> queue_records.Queue:
        """The queue, the leases and the nodes."""
        return cast(queue_records.Queue, self._json("GET", "/queue"))

    def move_run(self, run_id: str, *, before: str | None = None, after: str | None = None) -> None:
        """Put a queued run before or after another one of the same owner."""
        body = {"run_id": run_id, "before": before, "after": after}
        self._json("POST", "/queue/moves", body=body)

    def set_priority(self, run_id: str, priority: str) -> None:
        """Change a queued run's priority."""
        self._json("PATCH", f"/runs/{run_id}/priority", body={"priority": priority})

    def metrics(
        self,
        run_id: str,
        names: Iterable[str],
        *,
        after: str | int | None = None,
        from_step: int | None = None,
        max_points: int = 1000,
    ) -> records.MetricsPage:
        """Series by name; with ``after``, only what came in since that cursor; with ``from_step``,
        only that step and later ones."""
        parameters: Parameters = {
            "name": list(names),
            "max_points": max_points,
            "after": after,
            "from_step": from_step,
        }
        answer = self._json("GET", f"/runs/{run_id}/metrics", parameters)
        return cast(records.MetricsPage, answer)

    def histogram(self, run_id: str, name: str, max_steps: int = 200) -> records.Histogram:
        """Exact counts of one histogram, over steps and in all."""
        answer = self._json(
            "GET", f"/runs/{run_id}/histograms", {"name": name, "max_steps": max_steps}
        )
        return cast(records.Histogram, answer)

    def trajectories(
        self, run_id: str, *, split: str | None = None, cursor: str | None = None, limit: int = 20
    ) -> records.TrajectoryPage:
        """Trajectories, newest first."""
        parameters: Parameters = {"split": split, "cursor": cursor, "limit": limit}
        answer = self._json("GET", f"/runs/{run_id}/trajectories", parameters)
        return cast(records.TrajectoryPage, answer)

    def log(self, run_id: str, *, after: int | None = None, limit: int = 500) -> records.LogPage:
        """Log lines after ``after``, or the newest ones."""
        parameters = {"after": after, "limit": limit}
        return cast(records.LogPage, self._json("GET", f"/runs/{run_id}/log", parameters))

    def events(self, run_id: str) -> list[records.RunEvent]:
        """The run's life so far."""
        return cast(list[records.RunEvent], self._json("GET", f"/runs/{run_id}/events")["items"])

    def storage(self, limit: int = 200) -> records.Storage:
        """What the viewer's runs take, the largest first."""
        return cast(records.Storage, self._json("GET", "/storage", {"limit": limit}))

    def readiness(self) -> records.Readiness:
        """The state of the platform's parts; answers when some are down, too."""
        response = self._exchange("GET", "/readyz", {}, None, {})
        return cast(records.Readiness, _parsed(response))

    def _json(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return _parsed(self._send(method, path, parameters, body=body, headers=headers))

    def _send(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        credentials = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        response = self._exchange(
            method, PREFIX + path, parameters or {}, body, {**credentials, **(headers or {})}
        )
        if response.is_error:
            raise problem(response)
        return response

    def _exchange(
        self,
        method: str,
        path: str,
        parameters: Parameters,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> httpx.Response:
        sent = {name: value for name, value in parameters.items() if value is not None}
        try:
            return self._http.request(method, path, params=sent, json=body, headers=headers)
        except httpx.TimeoutException as error:
            raise ApiUnreachable(f"The API at {self.base_url} did not answer in time.") from error
        except httpx.TransportError as error:
            raise ApiUnreachable(f"Nothing answers at {self.base_url}.") from error


def open_connection(base_url: str) -> httpx.Client:
    """A connection pool that stores and sends no cookies, so that viewers may share it."""
    jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
    return httpx.Client(
        base_url=base_url,
        cookies=jar,
        timeout=httpx.Timeout(10, connect=2),
        limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
        trust_env=False,  # it is our own: no proxy leads to it
    )


def problem(response: httpx.Response) -> ApiProblem:
    """The error that a response with an error status stands for, whatever its body is."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    errors = tuple(
        FieldError(tuple(item.get("fields", ())), str(item["message"]), item.get("hint"))
        for item in body.get("errors") or ()
        if isinstance(item, dict) and "message" in item
    )
    return _kind(response.status_code)(
        response.status_code,
        str(body.get("title") or response.reason_phrase or f"Error {response.status_code}"),
        str(body.get("detail") or ""),
        errors,
        body.get("request_id") or response.headers.get("X-Request-Id"),
    )


def _kind(status: int) -> type[ApiProblem]:
    if status == httpx.codes.UNAUTHORIZED:
        return NotSignedIn
    if status == httpx.codes.NOT_FOUND:
        return NotFound
    return Unavailable if status >= httpx.codes.INTERNAL_SERVER_ERROR else ApiProblem


def _parsed(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError as error:
        raise ApiUnreachable("What answered is not Lagoon's API: it sent no JSON.") from error
    if not isinstance(body, dict):
        raise ApiUnreachable("What answered is not Lagoon's API: it sent no JSON object.")
    return body
