"""The API with canned answers, behind ``httpx.MockTransport`` or a local server."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import ValidationError

from lagoon.config import RunConfig
from lagoon.controls import Change, Refused, folded
from lagoon.problems import field_problems
from tests.dashboard import canned, canned_queue, canned_series

Json = dict[str, Any]
TOKEN = "lgt_test"
PASSWORD = "open water"


class FakeApi:
    """An account's view of the API. ``runs`` may be changed between requests."""

    def __init__(self, runs: list[Json] | None = None, *, stale: bool = False) -> None:
        some = runs is None
        self.runs = {run["id"]: run for run in (all_runs() if runs is None else runs)}
        self.experiments = {"e1demo": canned.experiment()} if some or runs else {}
        self.presets = canned.presets()
        self.stale = stale
        self.is_signed_in = True
        self.is_database_down = False
        self.is_down = False
        self.down: dict[str, str] = {}
        self.requests: list[httpx.Request] = []
        self.queue = canned_queue.queue() if some else canned_queue.empty()
        self.created: dict[str, Json] = {}
        self.controls: dict[str, Json] = {}
        self.series: dict[str, list[Json]] = {}
        """What a run has reported, where it is not the canned data."""
        self.histograms: dict[str, Callable[[str], Json]] = {}
        """And its histograms, by name."""

    def transport(self) -> httpx.MockTransport:
        """For an ``httpx.Client``."""
        return httpx.MockTransport(self.answer)

    def client(self, base_url: str = "http://api.test") -> httpx.Client:
        """A client that talks to this object."""
        return httpx.Client(transport=self.transport(), base_url=base_url)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Route one request."""
        self.requests.append(request)
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        path = request.url.path
        if path == "/readyz":
            return self._readiness()
        if self.is_database_down:
            return _problem(503, "The database does not answer", "Try again in a moment.")
        if not self._may(request, path):
            return _problem(401, "Not signed in", "Sign in first.")
        for method, pattern, handle in self._routes():
            found = re.fullmatch(f"/api/v1{pattern}", path)
            if found and method == request.method:
                return handle(request, *found.groups())
        return _problem(404, "Not found", f"There is no {path}.")

    def _may(self, request: httpx.Request, path: str) -> bool:
        if path == "/api/v1/session/tickets":
            return True
        given = request.headers.get("Authorization", "") == f"Bearer {TOKEN}"
        return given and self.is_signed_in

    def _routes(self) -> list[tuple[str, str, Callable[..., httpx.Response]]]:
        return [
            ("GET", "/me", lambda r: _ok({"id": "u1", "username": "admin", "role": "admin"})),
            ("POST", "/session/tickets", self._ticket),
            ("DELETE", "/session", self._sign_out),
            ("GET", "/schemas/run-config", lambda r: _ok(RunConfig.model_json_schema())),
            ("GET", "/catalogue", lambda r: _ok(canned.catalogue())),
            ("GET", "/presets", lambda r: _ok({"items": self.presets, "next": None})),
            ("POST", "/runs/validate", self._validate),
            ("GET", "/storage", lambda r: _ok(canned.storage(list(self.runs.values())))),
            ("GET", "/experiments", lambda r: _items(list(self.experiments.values()))),
            ("POST", "/experiments", self._create_experiment),
            ("GET", r"/experiments/(\w+)", self._experiment),
            ("PATCH", r"/experiments/(\w+)", self._change_experiment),
            ("GET", "/queue", lambda r: _ok(self.queue)),
            ("POST", "/queue/moves", self._move),
            ("PATCH", r"/runs/(\w+)/priority", self._prioritize),
            ("GET", "/runs", self._list),
            ("POST", "/runs", self._create),
            ("GET", r"/runs/(\w+)", self._run),
            ("POST", r"/runs/(\w+)/stop", self._stop),
            ("GET", r"/runs/(\w+)/controls", lambda r, i: _ok(self.controls_of(i))),
            ("POST", r"/runs/(\w+)/controls", self._change),
            ("POST", r"/runs/(\w+)/resume", self._resume),
            ("POST", r"/runs/(\w+)/fork", self._fork),
            ("GET", r"/runs/(\w+)/metrics", self._metrics),
            ("GET", r"/runs/(\w+)/histograms", self._histogram),
            ("GET", r"/runs/(\w+)/trajectories", self._trajectories),
            ("GET", r"/runs/(\w+)/log", self._log),
            ("GET", r"/runs/(\w+)/events", lambda r, i: _items(canned.events(self.runs[i]))),
        ]

    def _ticket(self, request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["password"] != PASSWORD:
            return _problem(401, "Wrong name or password", "")
        return _ok({"ticket": "one-time"})

    def _sign_out(self, request: httpx.Request) -> httpx.Response:
        self.is_signed_in = False
        return httpx.Response(204)

    def _validate(self, request: httpx.Request) -> httpx.Response:
        return self._checked(json.loads(request.content)["config"], lambda c: _ok({"config": c}))

    def _checked(self, config: Json, go_on: Callable[[Json], httpx.Response]) -> httpx.Response:
        try:
            return go_on(RunConfig.model_validate(config).model_dump(mode="json"))
        except ValidationError as error:
            errors = [
                {"fields": list(p.fields), "message": p.message, "hint": p.hint}
                for p in field_problems(error, RunConfig)
            ]
            return _problem(422, "The configuration cannot run", "", errors)

    def _create(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        key = request.headers["Idempotency-Key"]

        def make(config: Json) -> httpx.Response:
            if key not in self.created:
                number = len(self.created) + 1
                made = canned.run(f"rnew{number}", body["name"], "starting", config)
                self.created[key] = self.runs[made["id"]] = made
            return httpx.Response(201, json=self.created[key])

        return self._checked(body["config"], make)

    def _create_experiment(self, request: httpx.Request) -> httpx.Response:
        made = {**canned.experiment(), **json.loads(request.content), "id": "e2new", "num_runs": 0}
        self.experiments["e2new"] = made
        return httpx.Response(201, json=made)

    def _experiment(self, request: httpx.Request, key: str) -> httpx.Response:
        found = self.experiments.get(key)
        return _ok(found) if found else _problem(404, "No such experiment", "")

    def _change_experiment(self, request: httpx.Request, key: str) -> httpx.Response:
        self.experiments[key].update(json.loads(request.content))
        return _ok(self.experiments[key])

    def _list(self, request: httpx.Request) -> httpx.Response:
        wanted = request.url.params.get("experiment_id")
        found = [r for r in self.runs.values() if wanted in (None, r["experiment_id"])]
        return _items(sorted(found, key=lambda r: r["created_at"], reverse=True))

    def _run(self, request: httpx.Request, key: str) -> httpx.Response:
        found = self.runs.get(key)
        if found is None:
            return _problem(404, "No such run", "")
        etag = f'"{found["cursor"]}-{found["status"]}"'
        if request.headers.get("If-None-Match") == etag:
            return httpx.Response(304)
        return httpx.Response(200, json=found, headers={"ETag": etag})

    def _move(self, request: httpx.Request) -> httpx.Response:
        canned_queue.move(self.queue, json.loads(request.content))
        return _ok(self.queue)

    def _prioritize(self, request: httpx.Request, key: str) -> httpx.Response:
        canned_queue.item(self.queue, key)["priority"] = json.loads(request.content)["priority"]
        return _ok(self.runs.get(key, {}))

    def _stop(self, request: httpx.Request, key: str) -> httpx.Response:
        if canned_queue.item(self.queue, key):
            canned_queue.remove(self.queue, key)
            return httpx.Response(202, json={})
        run = self.runs[key]
        run.update(status="stopping", stop_requested_by="admin", cursor=run["cursor"] + 1)
        return httpx.Response(202, json=run)

    def controls_of(self, key: str) -> Json:
        """What may be changed of a run, and what was."""
        return self.controls.setdefault(key, canned.controls(self.runs[key]))

    def _change(self, request: httpx.Request, key: str) -> httpx.Response:
        run, found, sent = self.runs[key], self.controls_of(key), json.loads(request.content)
        log = [Change(number=each["number"], settings=each["after"]) for each in found["changes"]]
        try:
            folded(RunConfig.model_validate(run["config"]), log).after(sent["settings"])
        except Refused as refused:
            errors = [{"fields": list(p.fields), "message": p.message, "hint": None}
                      for p in refused.problems]  # fmt: skip
            return _problem(422, "The change cannot be made", str(refused), errors)
        before = {path: found["values"][path] for path in sent["settings"]}
        number = len(found["changes"]) + 1
        found["changes"].append(canned.change(number, before, sent["settings"], "pending"))
        found["values"] |= sent["settings"]
        run.update(
            is_paused=found["values"]["paused"], num_changes=number, cursor=run["cursor"] + 1
        )
        return httpx.Response(202, json=found)

    def _resume(self, request: httpx.Request, key: str) -> httpx.Response:
        run = self.runs[key]
        run.update(status="queued", reason="Resumed by admin.", cursor=run["cursor"] + 1)
        return httpx.Response(202, json=run)

    def _fork(self, request: httpx.Request, key: str) -> httpx.Response:
        body = json.loads(request.content)
        fork = canned.run("rf0rk3d1", body["name"], "queued", body["config"], parent_run_id=key)
        self.runs[fork["id"]] = fork
        return httpx.Response(201, json=fork)

    def _metrics(self, request: httpx.Request, key: str) -> httpx.Response:
        names = set(request.url.params.get_list("name"))
        reported = self.series.get(key, canned_series.series_of(key))
        found = [series for series in reported if series["name"] in names]
        if request.url.params.get("after"):
            found = []
        if first := int(request.url.params.get("from_step", 0)):
            found = [canned_series.beginning(series, first) for series in found]
        most = int(request.url.params["max_points"])
        found = [canned_series.thinned(s, most) if s["n_total"] > most else s for s in found]
        return _ok({"cursor": str(self.runs[key]["cursor"]), "series": found})

    def _histogram(self, request: httpx.Request, key: str) -> httpx.Response:
        name = request.url.params["name"]
        if key in self.histograms:
            return _ok(self.histograms[key](name))
        return _ok(canned_series.histogram(key, name, stale=self.stale))

    def _trajectories(self, request: httpx.Request, key: str) -> httpx.Response:
        split = request.url.params.get("split")
        found = canned.trajectories() if canned_series.series_of(key) else []
        return _items([t for t in found if split in (None, t["split"])])

    def _log(self, request: httpx.Request, key: str) -> httpx.Response:
        after = int(request.url.params.get("after", 0))
        lines = [line for line in canned.log_lines(key) if line["n"] > after]
        return _ok({"items": lines, "next_after": lines[-1]["n"] if lines else after})

    def _readiness(self) -> httpx.Response:
        down = dict(self.down)
        if self.is_database_down:
            down["postgres"] = "Postgres does not answer."
        checks = {
            part: {"ok": part not in down, "detail": down.get(part, "It answers.")}
            for part in ("postgres", "broker", "ray", "worker")
        }
        status = "unavailable" if down else "ok"
        return httpx.Response(503 if down else 200, json={"status": status, "checks": checks})


def all_runs() -> list[Json]:
    """A run in every state."""
    makers = (
        canned.running, canned.finished, canned.queued, canned.failed, canned.not_a_number,
    )  # fmt: skip
    return [make() for make in makers]


def _ok(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


def _items(items: list[Json]) -> httpx.Response:
    return _ok({"items": items, "next": None})


def _problem(
    status: int, title: str, detail: str, errors: list[Json] | None = None
) -> httpx.Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail,
            "instance": "/", "request_id": "q1", "errors": errors or []}  # fmt: skip
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})
