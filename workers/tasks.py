"""The Celery tasks. Each takes seconds, may run twice, and knows an attempt by its id alone."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from workers.app import app
from workers.launch import (
    JobState,
    RayJobs,
    RayUnreachable,
    SubmitRefused,
    entrypoint,
    submission_id,
)
from workers.platform import Attempt, ClusterSeen, Credential, JobSeen, Platform, PlatformFailed
from workers.remains import HOME, MARK, kill, processes_of
from workers.settings import Settings, ray_token

logger = logging.getLogger(__name__)

RETRIED = (RayUnreachable, PlatformFailed, httpx.TransportError)
"""Failures that pass: the task is tried again, for about five minutes."""
RETRY: dict[str, Any] = {"max_retries": 30, "default_retry_delay": 10}

# What of this process's environment a driver gets. Secrets are not among it: Ray shows a job's
# environment to whoever may look at its dashboard.
HANDED_ON = ("HF_HUB_OFFLINE", "HF_HOME", "LAGOON_SPOOL_QUOTA_BYTES")


@app.task(name="workers.submit", bind=True, **RETRY)
def submit(task: Any, attempt_id: str) -> None:
    """Start an attempt's Ray job."""
    settings = Settings()
    try:
        with open_platform(settings) as platform, open_ray(settings) as ray:
            submit_attempt(attempt_id, platform, ray, settings.home)
    except RETRIED as error:
        raise task.retry(exc=error) from error


@app.task(name="workers.stop", bind=True, **RETRY)
def stop(task: Any, attempt_id: str) -> None:
    """End an attempt's Ray job, whose driver did not end when it was asked to."""
    try:
        with open_ray(Settings()) as ray:
            ray.stop(submission_id(attempt_id))
    except RETRIED as error:
        raise task.retry(exc=error) from error


@app.task(name="workers.observe")
def observe() -> None:
    """Tell the API what Ray says of its nodes and of every attempt that is not gone; end what is
    to end."""
    settings = Settings()
    with open_platform(settings) as platform, open_ray(settings) as ray:
        observe_attempts(platform, ray, settings.home)


def submit_attempt(attempt_id: str, platform: Platform, ray: RayJobs, home: Path) -> None:
    """Mint the driver's credential, hand the job to Ray, and tell the platform how it went.

    The platform refuses an attempt that is over, or deleted: then there is nothing to submit.
    """
    job = submission_id(attempt_id)
    with one_at_a_time(home):
        if ray.state(job).status == "missing":
            try:
                minted = platform.mint_token(attempt_id)
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in (404, 409, 410):
                    raise
                logger.warning("attempt %s is not to be started any more", attempt_id)
                return
            try:
                _hand_to_ray(attempt_id, minted, ray, home)
            except (SubmitRefused, OSError) as error:
                who = "Ray refused" if isinstance(error, SubmitRefused) else "The workers failed at"
                reason = f"{who} the job: {error}"
                platform.report_submit_failed(attempt_id, reason, traceback.format_exc())
                return
    platform.report_submitted(attempt_id, job)


def _hand_to_ray(attempt_id: str, minted: Credential, ray: RayJobs, home: Path) -> None:
    """Write the credential where the driver finds it, and start the job."""
    credential = write_credential(home, attempt_id, minted.token)
    command = entrypoint(attempt_id, minted.api_url, credential, minted.fencing_token)
    ray.submit(submission_id(attempt_id), command, driver_environment(home, attempt_id))


@contextlib.contextmanager
def one_at_a_time(home: Path) -> Iterator[None]:
    """Held from the look at Ray to the submission.

    A task that is delivered twice would otherwise mint twice, and the later token makes the earlier
    one worthless, whichever of them the driver finds in its file.
    """
    folder = home / "attempts"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def observe_attempts(platform: Platform, ray: RayJobs, home: Path) -> None:
    """One look at Ray and at this machine's processes, reported as a whole.

    What has had its time to end is killed first. When Ray is away, that is the report.
    """
    attempts = [item for item in platform.active_attempts() if item.submission_id or item.is_over]
    killed = {item.id: kill_remains(item.id, home) for item in attempts if item.measure == "kill"}
    found = processes_of([item.id for item in attempts], home)

    def seen(item: Attempt, state: JobState) -> JobSeen:
        left, ended = len(found[item.id]), killed.get(item.id, 0)
        return JobSeen(item.id, state.status, state.message, left, ended)

    try:
        cluster: ClusterSeen | None = ray.cluster()
        jobs = [seen(item, _state_of(item, ray)) for item in attempts]
    except RayUnreachable as error:
        logger.warning("Ray is not reachable: %s", error)
        cluster, away = None, JobState("unreachable", str(error))
        jobs = [seen(item, away) for item in attempts]
    platform.report_seen(reachable=cluster is not None, cluster=cluster, jobs=jobs)


def _state_of(attempt: Attempt, ray: RayJobs) -> JobState:
    """What Ray says of an attempt's job; one that should have ended long ago is ended for it."""
    job = attempt.submission_id or submission_id(attempt.id)
    state = ray.state(job)
    if attempt.measure == "kill" and state.status in ("pending", "running"):
        ray.stop(job)
    return state


def kill_remains(attempt_id: str, home: Path) -> int:
    """Kill what carries the attempt's mark on this machine; how many processes that were."""
    count = kill(attempt_id, home, processes_of([attempt_id], home)[attempt_id])
    if count:
        logger.warning("killed %d processes that were left of attempt %s", count, attempt_id)
    return count


def write_credential(home: Path, attempt_id: str, token: str) -> Path:
    """Leave the driver's credential where only this user can read it."""
    folder = home / "attempts" / attempt_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "credential"
    new = folder / "credential.new"
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    new.replace(path)
    return path


def driver_environment(home: Path, attempt_id: str) -> dict[str, str]:
    """The variables that a driver and its actors get on top of the node's own.

    The mark tells which attempt a process on a node belongs to (``workers/remains.py``).
    """
    handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    return {**handed_on, HOME: str(home), MARK: attempt_id}


def open_platform(settings: Settings) -> Platform:
    """The API with the workers' credential."""
    return Platform(settings.api_url, settings.service_token)


def open_ray(settings: Settings) -> RayJobs:
    """The Jobs API with Ray's token."""
    return RayJobs(settings.ray_address, ray_token())
