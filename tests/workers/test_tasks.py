"""The Celery side: submit, stop and observe against a Ray and an API that live in the test."""

import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr, ValidationError

from tests.workers.processes import TEST_HOME
from workers import tasks
from workers.app import create_app, read_settings
from workers.launch import RayJobs, RayUnreachable, SubmitRefused, entrypoint, submission_id
from workers.platform import Platform, PlatformFailed
from workers.settings import Settings, described, ray_token
from workers.tasks import driver_environment, observe_attempts, submit_attempt, write_credential

ATTEMPT = "r7k2m9qd-a1"
JOB = "run-r7k2m9qd-a1"


def node(id: str, state: str = "ALIVE", **total: float) -> dict[str, Any]:
    """A node as Ray lists it."""
    return {"node_id": id, "node_name": f"at {id}", "state": state, "resources_total": total}


class FakeRay(httpx.BaseTransport):
    """Ray's Jobs API: jobs by submission id, one node, and faults on request."""

    def __init__(self, **jobs: str) -> None:
        self.jobs: dict[str, Any] = {
            name.replace("_", "-"): {"status": status, "message": f"it is {status}"}
            for name, status in jobs.items()
        }
        self.bodies: list[Any] = []
        self.stopped: list[str] = []
        self.submit_answer: httpx.Response | None = None
        self.is_away = False
        self.nodes = [node("n1", CPU=2.0, memory=1.0)]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            raise httpx.ConnectError("refused", request=request)
        path = request.url.path
        if path == "/api/v0/nodes":
            return httpx.Response(200, json={"data": {"result": {"result": self.nodes}}})
        if request.method == "POST" and path == "/api/jobs/":
            return self._submit(json.loads(request.content))
        name, _, verb = path.removeprefix("/api/jobs/").partition("/")
        if name not in self.jobs:
            return httpx.Response(404, text=f"Job {name} does not exist")
        if verb == "stop":
            self.stopped.append(name)
            return httpx.Response(200, json={"stopped": True})
        return httpx.Response(200, json=self.jobs[name])

    def _submit(self, body: dict[str, Any]) -> httpx.Response:
        if self.submit_answer is not None:
            return self.submit_answer
        self.bodies.append(body)
        self.jobs[body["submission_id"]] = {"status": "PENDING", "message": ""}
        return httpx.Response(200, json={"submission_id": body["submission_id"]})


class FakePlatform(httpx.BaseTransport):
    """The API's internal endpoints, and a record of what was posted."""

    def __init__(self, attempts: list[dict[str, Any]] | None = None, token_status: int = 200):
        self.attempts = attempts or []
        self.token_status = token_status
        self.post_status = 204
        self.posted: list[tuple[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer lgs_x"
        path = request.url.path.removeprefix("/api/v1/internal")
        if request.method == "GET":
            return httpx.Response(200, json={"items": self.attempts})
        if path.endswith("/token"):
            answer = {"token": "lga_secret", "fencing_token": 3, "api_url": "http://api.test"}
            return httpx.Response(self.token_status, json=answer)
        self.posted.append((path, json.loads(request.content)))
        return httpx.Response(self.post_status)


def platform_of(fake: FakePlatform) -> Platform:
    return Platform("http://api.test", "lgs_x", fake)


def ray_of(fake: FakeRay) -> RayJobs:
    return RayJobs("http://ray.test", "token", fake)


def attempt(**changes: Any) -> dict[str, Any]:
    return {
        "id": ATTEMPT,
        "submission_id": JOB,
        "status": "running",
        "measure": "none",
        "boot_id": None,
    } | changes


def submitted(fake_ray: FakeRay, fake_platform: FakePlatform, home: Path) -> None:
    with platform_of(fake_platform) as platform, ray_of(fake_ray) as ray:
        submit_attempt(ATTEMPT, platform, ray, home)


def test_a_submitted_attempt_is_a_job_of_its_own_name(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    submitted(ray, platform, tmp_path)
    (body,) = ray.bodies
    assert body["submission_id"] == JOB
    assert body["entrypoint"].startswith("python -m workers.driver --attempt r7k2m9qd-a1")
    assert body["entrypoint"].endswith("--fencing-token 3")
    assert platform.posted == [(f"/attempts/{ATTEMPT}/submitted", {"submission_id": JOB})]


def test_the_drivers_credential_is_in_a_private_file_and_nowhere_in_ray(tmp_path):
    ray = FakeRay()
    submitted(ray, FakePlatform(), tmp_path)
    credential = tmp_path / "attempts" / ATTEMPT / "credential"
    assert credential.read_text() == "lga_secret"
    assert stat.S_IMODE(credential.stat().st_mode) == 0o600
    assert str(credential) in ray.bodies[0]["entrypoint"]
    assert "lga_secret" not in json.dumps(ray.bodies)


def test_submitting_twice_starts_one_job_and_mints_one_token(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    submitted(ray, platform, tmp_path)
    write_credential(tmp_path, ATTEMPT, "the running driver's")
    submitted(ray, platform, tmp_path)
    assert len(ray.bodies) == 1
    assert len(platform.posted) == 2
    assert (tmp_path / "attempts" / ATTEMPT / "credential").read_text() == "the running driver's"


class MintingPlatform(FakePlatform):
    """Mints numbered tokens; while it answers the first, the same task is delivered once more."""

    def __init__(self, deliver_again: Callable[[], None]) -> None:
        super().__init__()
        self.num_minted = 0
        self.has_minted_twice = threading.Event()
        self.second = threading.Thread(target=deliver_again)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/token"):
            return super().handle_request(request)
        self.num_minted += 1
        token = f"lga_{self.num_minted}"
        if self.num_minted == 1:
            self.second.start()
            self.has_minted_twice.wait(0.3)  # nothing comes of it when deliveries take turns
        else:
            self.has_minted_twice.set()
        answer = {"token": token, "fencing_token": self.num_minted, "api_url": "http://api.test"}
        return httpx.Response(200, json=answer)


def test_a_task_delivered_twice_at_once_leaves_the_newest_token_in_the_file(tmp_path):
    ray = FakeRay()
    platform = MintingPlatform(lambda: submitted(ray, platform, tmp_path))
    submitted(ray, platform, tmp_path)
    platform.second.join()
    credential = (tmp_path / "attempts" / ATTEMPT / "credential").read_text()
    assert credential == f"lga_{platform.num_minted}"
    assert platform.num_minted == len(ray.bodies) == 1
    assert platform.posted == [(f"/attempts/{ATTEMPT}/submitted", {"submission_id": JOB})] * 2


def test_a_job_that_somebody_else_has_just_submitted_is_no_failure(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    ray.submit_answer = httpx.Response(500, text="ValueError: Job with it already exists. Use ...")
    submitted(ray, platform, tmp_path)
    assert platform.posted == [(f"/attempts/{ATTEMPT}/submitted", {"submission_id": JOB})]


@pytest.mark.parametrize("status", [404, 409])
def test_an_attempt_that_is_over_is_not_submitted(tmp_path, status):
    ray, platform = FakeRay(), FakePlatform(token_status=status)
    submitted(ray, platform, tmp_path)
    assert ray.bodies == []
    assert platform.posted == []


def test_an_api_that_fails_is_not_taken_for_an_answer(tmp_path):
    with pytest.raises(PlatformFailed):
        submitted(FakeRay(), FakePlatform(token_status=500), tmp_path)


def test_a_submission_that_the_api_failed_to_note_is_reported_again(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    platform.post_status = 503
    with pytest.raises(tasks.RETRIED):
        submitted(ray, platform, tmp_path)
    platform.post_status = 204
    submitted(ray, platform, tmp_path)
    assert len(ray.bodies) == 1
    assert platform.posted == [(f"/attempts/{ATTEMPT}/submitted", {"submission_id": JOB})] * 2


def test_an_api_that_refuses_is_not_asked_again(tmp_path):
    platform = FakePlatform()
    platform.post_status = 422
    with pytest.raises(httpx.HTTPStatusError) as refused:
        submitted(FakeRay(), platform, tmp_path)
    assert not isinstance(refused.value, tasks.RETRIED)


def test_a_ray_that_fails_at_a_submit_is_asked_again_and_the_run_has_not_failed(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    ray.submit_answer = httpx.Response(500, text="Traceback\nRuntimeError: no agent yet")
    with pytest.raises(tasks.RETRIED, match="no agent yet"):
        submitted(ray, platform, tmp_path)
    assert platform.posted == []
    ray.submit_answer = None
    submitted(ray, platform, tmp_path)
    assert platform.posted == [(f"/attempts/{ATTEMPT}/submitted", {"submission_id": JOB})]


def test_a_job_that_ray_refuses_fails_the_run_with_rays_last_line(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    ray.submit_answer = httpx.Response(
        400, text="Traceback\n  ...\nValueError: bad runtime env\n.\n"
    )
    submitted(ray, platform, tmp_path)
    ((path, body),) = platform.posted
    assert path == f"/attempts/{ATTEMPT}/submit-failed"
    assert body["reason"] == "Ray refused the job: ValueError: bad runtime env"
    assert "SubmitRefused" in body["traceback"]


def test_a_ray_that_is_away_leaves_the_attempt_to_a_later_try(tmp_path):
    ray, platform = FakeRay(), FakePlatform()
    ray.is_away = True
    with pytest.raises(RayUnreachable):
        submitted(ray, platform, tmp_path)
    assert platform.posted == []


def observed(fake_ray: FakeRay, fake_platform: FakePlatform) -> Any:
    with platform_of(fake_platform) as platform, ray_of(fake_ray) as ray:
        observe_attempts(platform, ray, TEST_HOME)
    ((path, body),) = fake_platform.posted
    assert path == "/observations"
    return body


def test_an_observation_tells_of_every_submitted_attempt_and_of_the_cluster():
    ray = FakeRay(run_a="RUNNING")
    ray.nodes += [node("n2", CPU=4.0, GPU=1.0), node("n3", "DEAD", CPU=64.0)]
    attempts = [
        attempt(id="a", submission_id="run-a"),
        attempt(id="b", submission_id="run-b"),
        attempt(id="c", submission_id=None),
        attempt(id="d", submission_id=None, status="stopped"),
    ]
    body = observed(ray, FakePlatform(attempts))
    assert body["ray"] == "ok"
    assert body["cluster"] == {
        "cpus": 6.0,
        "gpus": 1.0,
        "nodes": [
            {"id": "n1", "name": "at n1", "cpus": 2.0, "gpus": 0.0},
            {"id": "n2", "name": "at n2", "cpus": 4.0, "gpus": 1.0},
        ],
    }
    assert [(job["attempt_id"], job["ray_status"]) for job in body["jobs"]] == [
        ("a", "running"),
        ("b", "missing"),
        ("d", "missing"),  # nobody knows that it was submitted, and it holds slots
    ]


def test_a_credential_that_cannot_be_written_fails_the_run_with_its_cause(tmp_path):
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / ATTEMPT).write_text("not a folder")
    platform = FakePlatform()
    submitted(FakeRay(), platform, tmp_path)
    ((path, body),) = platform.posted
    assert path == f"/attempts/{ATTEMPT}/submit-failed"
    assert "The workers failed at the job: " in body["reason"]
    assert "File exists" in body["reason"]


@pytest.mark.parametrize("fault", ["away", "nodeless", "unauthorized"])
def test_a_ray_that_cannot_be_asked_is_no_evidence_against_a_run(fault):
    ray = FakeRay(run_r7k2m9qd_a1="FAILED")
    ray.is_away = fault == "away"
    if fault == "nodeless":
        ray.nodes = []
    if fault == "unauthorized":
        ray.handle_request = lambda request: httpx.Response(401)  # type: ignore[method-assign]
    body = observed(ray, FakePlatform([attempt()]))
    assert body["ray"] == "unreachable"
    assert body["cluster"] is None
    assert [job["ray_status"] for job in body["jobs"]] == ["unreachable"]


@pytest.mark.parametrize("word", ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"])
def test_rays_words_become_ours(word):
    with ray_of(FakeRay(run_x=word)) as ray:
        assert ray.state("run-x").status == word.lower()


def test_a_word_of_rays_that_we_do_not_know_is_not_guessed():
    with ray_of(FakeRay(run_x="PONDERING")) as ray, pytest.raises(RayUnreachable):
        ray.state("run-x")


def test_stopping_a_job_that_is_gone_is_no_error():
    fake = FakeRay(run_x="RUNNING")
    with ray_of(fake) as ray:
        ray.stop("run-gone")
        ray.stop("run-x")
    assert fake.stopped == ["run-x"]


def test_a_refused_submit_is_told_apart_from_an_unreachable_ray():
    fake = FakeRay()
    fake.submit_answer = httpx.Response(400, text="no")
    with ray_of(fake) as ray, pytest.raises(SubmitRefused, match="no"):
        ray.submit("run-x", "true", {})


def test_paths_with_spaces_survive_the_command_line():
    command = entrypoint("a", "http://api", Path("/a folder/credential"), 1)
    assert "'/a folder/credential'" in command


def test_the_name_of_a_job_follows_from_its_attempt():
    assert submission_id(ATTEMPT) == JOB


def test_a_driver_gets_the_home_folder_its_attempts_name_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("LAGOON_BROKER_URL", "redis://:secret@h")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    environment = driver_environment(tmp_path, ATTEMPT)
    assert environment["LAGOON_HOME"] == str(tmp_path)
    assert environment["LAGOON_ATTEMPT"] == ATTEMPT
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "LAGOON_BROKER_URL" not in environment


def test_rays_token_comes_from_rays_own_variables(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert ray_token() is None
    (tmp_path / "token").write_text("t\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert ray_token() == "t"


def test_settings_are_shown_without_their_secrets(tmp_path):
    settings = Settings(home=tmp_path, broker_url=SecretStr("redis://:secret@host:1/0"))
    shown = described(settings)
    assert shown["LAGOON_BROKER_URL"] == "redis://host:1/0"
    assert shown["LAGOON_HOME"] == str(tmp_path)
    assert "secret@" not in str(shown)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observe_seconds", "-1"),
        ("api_url", "127.0.0.1:8000"),
        ("ray_address", "ray"),
        ("broker_url", "here"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(f"LAGOON_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


def test_a_worker_with_a_wrong_setting_says_so_in_a_line_and_does_not_start(monkeypatch):
    monkeypatch.setenv("LAGOON_RAY_ADDRESS", "ray")
    with pytest.raises(SystemExit) as ended:
        read_settings()
    said, line = str(ended.value).splitlines()
    assert said == "The worker's settings are wrong."
    assert line.startswith("LAGOON_RAY_ADDRESS: ")


def test_tasks_are_acknowledged_late_and_come_back_soon(tmp_path):
    app = create_app(Settings(home=tmp_path, observe_seconds=3))
    assert app.conf.task_acks_late
    assert app.conf.task_ignore_result
    assert app.conf.task_time_limit < app.conf.broker_transport_options["visibility_timeout"]
    (entry,) = app.conf.beat_schedule.values()
    assert (entry["task"], entry["schedule"]) == ("workers.observe", 3)
