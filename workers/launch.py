"""Ray's Jobs API over HTTP: the only file that knows it, and all that Celery sees of Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import Any

import httpx

from lagoon.status import RayStatus
from workers.platform import ClusterSeen, NodeSeen

TIMEOUT_SECONDS = 20.0

_STATUSES: dict[str, RayStatus] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}


class RayUnreachable(Exception):
    """Ray did not answer, or not as Ray. Nothing is known about its jobs."""


class SubmitRefused(Exception):
    """Ray answered that it will not run the job; trying again would not help."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as Ray sees it."""

    status: RayStatus
    message: str


def submission_id(attempt_id: str) -> str:
    """The name of an attempt's job. It follows from the attempt, so a second submit is noticed."""
    return f"run-{attempt_id}"


def entrypoint(attempt_id: str, api_url: str, credential_file: Path, fencing_token: int) -> str:
    """The driver's command line. The credential itself is not in it."""
    return join(
        [
            *("python", "-m", "workers.driver"),
            *("--attempt", attempt_id),
            *("--api-url", api_url),
            *("--credential-file", str(credential_file)),
            *("--fencing-token", str(fencing_token)),
        ]
    )


class RayJobs:
    """The jobs of a cluster. Methods raise ``RayUnreachable``."""

    def __init__(
        self, address: str, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            trust_env=False,  # it is our own: no proxy leads to it
        )

    def __enter__(self) -> RayJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, job: str, command: str, environment: Mapping[str, str]) -> None:
        """Start a job; one of that name that exists already is left as it is.

        Raises ``SubmitRefused`` when Ray will not have it.
        """
        if self.state(job).status != "missing":
            return
        body = {
            "submission_id": job,
            "entrypoint": command,
            "runtime_env": {"env_vars": dict(environment)},
        }
        answer = self._request("POST", "/api/jobs/", json=body)
        if answer.is_success or "already exists" in answer.text:  # somebody was faster
            return
        if answer.is_server_error:  # Ray failed by itself; it refuses with a 4xx
            raise RayUnreachable(f"Ray answered {answer.status_code}: {_last_line(answer.text)}")
        raise SubmitRefused(_last_line(answer.text))

    def state(self, job: str) -> JobState:
        """What Ray says of a job; ``missing`` when it does not know it."""
        answer = self._request("GET", f"/api/jobs/{job}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return JobState("missing", "")
        found = _json(answer)
        status = _STATUSES.get(str(found.get("status")))
        if status is None:
            raise RayUnreachable(f"Ray knows no state {found.get('status')!r} of ours")
        return JobState(status, str(found.get("message") or ""))

    def stop(self, job: str) -> None:
        """Ask Ray to end a job: SIGTERM, and SIGKILL to what is left. Nothing if it is gone."""
        answer = self._request("POST", f"/api/jobs/{job}/stop")
        if answer.status_code != httpx.codes.NOT_FOUND:
            _json(answer)

    def cluster(self) -> ClusterSeen:
        """The nodes that are alive, with the CPUs and GPUs that each was declared to have."""
        answer = self._request("GET", "/api/v0/nodes", params={"detail": "1", "limit": "10000"})
        listed = (_json(answer).get("data") or {}).get("result") or {}
        nodes = [node for node in listed.get("result") or [] if node.get("state") == "ALIVE"]
        if not nodes:
            raise RayUnreachable("Ray has no node yet")
        return ClusterSeen(tuple(_node(node) for node in nodes))

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise RayUnreachable(f"{type(error).__name__}: {error}") from error
        if answer.status_code in (401, 403):
            raise RayUnreachable("Ray refuses our token")
        return answer


def _node(node: dict[str, Any]) -> NodeSeen:
    total = node.get("resources_total") or {}
    id = str(node["node_id"])
    name = str(node.get("node_name") or node.get("node_ip") or id)
    return NodeSeen(id, name, float(total.get("CPU", 0)), float(total.get("GPU", 0)))


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not answer.is_success or not isinstance(content, dict):
        raise RayUnreachable(f"Ray answered {answer.status_code}: {_last_line(answer.text)}")
    return content


def _last_line(text: str) -> str:
    """The last line that says something: Ray answers with whole tracebacks."""
    lines = [line for line in text.splitlines() if re.search(r"\w", line)]
    return lines[-1].strip()[:500] if lines else "no reason given"
