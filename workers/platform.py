"""The workers' side of the API: the few endpoints that only the service token opens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import httpx

from lagoon.proc import machine_id
from lagoon.status import RayStatus, RunStatus
from lagoon.stopping import Measure

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that is not over, or of which something may be left, as the platform knows it."""

    id: str
    submission_id: str | None
    """The name of its Ray job; None before it was submitted."""
    is_over: bool
    measure: Measure
    """What is due to end it."""
    boot_id: str | None
    """The machine that its driver was heard from (``lagoon.proc.machine_id``)."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a driver needs to be the attempt's only one."""

    token: str
    fencing_token: int
    api_url: str


@dataclass(frozen=True, slots=True)
class JobSeen:
    """What Ray says of an attempt's job."""

    attempt_id: str
    ray_status: RayStatus
    message: str
    num_processes: int
    """Processes with its mark on this machine."""
    num_killed: int


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A Ray node that is alive, and what it has in all."""

    id: str
    name: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """The nodes of the cluster."""

    nodes: tuple[NodeSeen, ...]

    @property
    def cpus(self) -> float:
        """CPUs of all nodes together."""
        return sum(node.cpus for node in self.nodes)

    @property
    def gpus(self) -> float:
        """GPUs of all nodes together."""
        return sum(node.gpus for node in self.nodes)


class PlatformFailed(httpx.HTTPStatusError):
    """The API failed by itself (5xx): nothing is known of the request, and a later one may work."""


class Platform:
    """The API, called with the service token.

    Methods raise ``httpx.HTTPError``: ``PlatformFailed`` and ``httpx.TransportError`` may pass.
    """

    def __init__(
        self, api_url: str, token: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.api_url = api_url
        self._http = httpx.Client(
            base_url=f"{api_url}/api/v1/internal",
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            trust_env=False,  # it is our own: no proxy leads to it
        )

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def active_attempts(self) -> list[Attempt]:
        """Every attempt that holds the machine, is about to, or has not been seen gone."""
        items = self._call("GET", "/attempts", params={"active": "true"})["items"]
        return [
            Attempt(
                item["id"],
                item.get("submission_id"),
                RunStatus(item["status"]).is_terminal,
                item["measure"],
                item["boot_id"],
            )
            for item in items
        ]

    def mint_token(self, attempt_id: str) -> Credential:
        """A new credential for the attempt's driver, in place of any old one."""
        answer = self._call("POST", f"/attempts/{attempt_id}/token")
        return Credential(
            answer["token"], answer["fencing_token"], answer.get("api_url") or self.api_url
        )

    def report_submitted(self, attempt_id: str, submission_id: str) -> None:
        """The attempt's job is Ray's now."""
        self._call(
            "POST", f"/attempts/{attempt_id}/submitted", json={"submission_id": submission_id}
        )

    def report_submit_failed(self, attempt_id: str, reason: str, traceback: str) -> None:
        """The attempt's job cannot be started: the run ends as failed."""
        body = {"reason": reason, "traceback": traceback}
        self._call("POST", f"/attempts/{attempt_id}/submit-failed", json=body)

    def report_seen(
        self, *, reachable: bool, cluster: ClusterSeen | None, jobs: list[JobSeen]
    ) -> None:
        """One look at Ray, and at the processes of this machine."""
        body = {
            "ray": "ok" if reachable else "unreachable",
            "boot_id": machine_id(),
            "cluster": _described(cluster) if cluster else None,
            "jobs": [asdict(job) for job in jobs],
        }
        self._call("POST", "/observations", json=body)

    def take_left(self, attempt_id: str, body: bytes) -> httpx.Response:
        """A batch that a dead driver left; the API's answer, also when it refuses."""
        headers = {"content-type": "application/json"}
        return self._answer("POST", f"/attempts/{attempt_id}/events", content=body, headers=headers)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        answer = self._answer(method, path, **options)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if answer.is_server_error:
            message = f"the API answered {answer.status_code} to {method} {path}"
            raise PlatformFailed(message, request=answer.request, response=answer)
        return answer


def _described(cluster: ClusterSeen) -> dict[str, Any]:
    nodes = [asdict(node) for node in cluster.nodes]
    return {"cpus": cluster.cpus, "gpus": cluster.gpus, "nodes": nodes}
