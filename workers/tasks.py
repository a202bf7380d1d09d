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

from lagoon.proc import machine_id
from lagoon.spools import attempts_with_spools
from lagoon.status import OVER_FOR_RAY
from workers.app import app
from workers.launch import (
    JobState,
    RayJobs,
    RayUnreachable,
    SubmitRefused,
    entrypoint,
    submission_id,
)
from workers.leftovers import SpoolLeft, deliver_all, deliver_before
from workers.platform import Attempt, ClusterSeen, Credential, JobSeen, Platform, PlatformFailed
from workers.remains import HOME, MARK, kill, processes_of
from workers.settings import Settings, ray_token

logger = logging.getLogger(__name__)

RETRIED = (RayUnreachable, PlatformFailed, httpx.TransportError, SpoolLeft)
"""Failures that pass: the task is tried again, for about five minutes."""
RETRY: dict[str, Any] = {"max_retries": 30, "default_retry_delay": 10}
DELIVER_SECONDS = 2.0
"""How long one task delivers what drivers left; the next one goes on. Less than the time between
two looks, so that all the rest of the tasks have room."""
LEFT_RETRIES = 12
"""How often a start is put off, for two minutes, because the API fails over what drivers left."""

# What of this process's environment a driver gets. Secrets are not among it: Ray shows a job's
# environment to whoever may look at its dashboard.
HANDED_ON = ("HF_HUB_OFFLINE", "HF_HOME", "LAGOON_SPOOL_QUOTA_BYTES")


@app.task(name="workers.submit", bind=True, **RETRY)
def submit(task: Any, attempt_id: str) -> None:
    """Start an attempt's Ray job."""
    settings = Settings()
    try:
        with open_platform(settings) as platform, open_ray(settings) as ray:
            try:
                deliver_before(attempt_id, platform, settings.home, DELIVER_SECONDS)
            except PlatformFailed as error:
                if task.request.retries < LEFT_RETRIES:
                    raise
                logger.warning("attempt %s starts without what was left: %s", attempt_id, error)
            submit_attempt(attempt_id, platform, ray, settings.home)
    except RETRIED as error:
        raise task.retry(exc=error) from error


@app.task(name="workers.observe")
def observe() -> None:
    """Tell the API what Ray says of its nodes and of every attempt that is not gone; end what is
    to end; have delivered what dead drivers left."""
    settings = Settings()
    with open_platform(settings) as platform, open_ray(settings) as ray:
        left = observe_attempts(platform, ray, settings.home)
    if left:
        deliver_left.apply_async((left,), expires=settings.observe_seconds)


@app.task(name="workers.deliver_left")
def deliver_left(attempt_ids: list[str]) -> None:
    """Deliver what is left in the spools of attempts whose processes are gone.

    The next look has it done again until all has arrived, so that no failure needs a retry.
    """
    settings = Settings()
    with open_platform(settings) as platform:
        deliver_all(attempt_ids, platform, settings.home, DELIVER_SECONDS)


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


def observe_attempts(platform: Platform, ray: RayJobs, home: Path) -> list[str]:
    """One look at Ray and at this machine's processes, reported as a whole.

    What has had its time to end is killed first. When Ray is away, that is the report. Returns the
    attempts whose spool on this machine may hold what has not arrived, with no driver to send it.
    """
    # Before the list: an attempt that starts meanwhile is in neither.
    spools = attempts_with_spools(home, delivered=False)
    listed = platform.active_attempts()
    attempts = [item for item in listed if item.submission_id or item.is_over]
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
    waiting = {item.id for item in listed} - _without_driver(attempts, jobs)
    return [id for id in spools if id not in waiting]


def _without_driver(attempts: list[Attempt], jobs: list[JobSeen]) -> set[str]:
    """Of the attempts that are not gone yet those whose driver was on this machine, and is no more.

    A driver elsewhere may still run when Ray says otherwise: it is waited until it is gone.
    """
    here = {item.id for item in attempts if item.boot_id and item.boot_id == machine_id()}
    over = {job.attempt_id for job in jobs if job.ray_status in OVER_FOR_RAY}
    left = {job.attempt_id for job in jobs if job.num_processes}
    return here & over - left


def _state_of(attempt: Attempt, ray: RayJobs) -> JobState:
    """What Ray says of an attempt's job; one that should have ended long ago is ended for it."""
    job = attempt.submission_id or submission_id(attempt.id)
    state = ray.state(job)
    if attempt.measure in ("ray_stop", "kill") and state.status in ("pending", "running"):
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
