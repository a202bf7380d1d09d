"""What the parts of the fault suite share: a platform, runs on it, and what must hold of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.fault_checks import differences, prompt_faults
from benchmarks.fault_targets import of_attempt
from cli.client import Api
from cli.home import Home
from cli.output import Refusal
from cli.processes import wait_until
from lagoon.spools import attempts_with_spools
from lagoon.status import RunStatus

VERDICT_SECONDS = 60.0
"""Within this time the platform must say what is true."""
END_SECONDS = 600.0
GONE_SECONDS = 30.0
POLL_SECONDS = 0.5
PROMPTS_PER_STEP = 4
Run = dict[str, Any]


def config(seed: int, **sections: dict[str, Any]) -> dict[str, Any]:
    """A run of about a minute, with the values of ``sections`` in the place of its own."""
    base: dict[str, Any] = {
        "model": {"path": "tiny", "max_length_tokens": 128},
        "environment": {"name": "calculator", "mean_wait_seconds": 0},
        "method": {"name": "grpo", "num_prompts": PROMPTS_PER_STEP, "group_size": 4},
        "rollout": {"kv_cache_gib": 0.25},
        "evaluation": {"num_tasks": 8, "every_steps": 10},
        "checkpoint": {"every_steps": 2},
        "budget": {"max_steps": 60, "max_restarts": 10},
        "seed": seed,
    }
    return base | {name: base.get(name, {}) | values for name, values in sections.items()}


@dataclass(frozen=True, slots=True)
class Stage:
    """A platform of the suite's own, asked as a person would, with patience while it restarts."""

    home: Home
    api: Api

    def start(self, name: str, config: dict[str, Any]) -> str:
        """Queue a run; its id."""
        run_id: str = self.patiently("POST", "/runs", {"name": name, "config": config})["id"]
        return run_id

    def read(self, run_id: str) -> Run:
        """The run as its page shows it."""
        run: Run = self.patiently("GET", f"/runs/{run_id}")
        return run

    def said(self, run_id: str) -> list[str]:
        """The reasons in the run's history, oldest first."""
        page = self.patiently("GET", f"/runs/{run_id}/events?limit=200")
        return [event["reason"] for event in page["items"]]

    def until(
        self, run_id: str, holds: Callable[[Run], bool], seconds: float = VERDICT_SECONDS
    ) -> float | None:
        """Seconds until ``holds`` is true of the run; None when it was not in time."""
        began = time.monotonic()
        if wait_until(lambda: holds(self.read(run_id)), seconds, poll_seconds=POLL_SECONDS):
            return time.monotonic() - began
        return None

    def ended(self, run_id: str) -> Run:
        """The run when it is over, or when it has had all its time."""
        self.until(run_id, lambda run: RunStatus(run["status"]).is_terminal, END_SECONDS)
        return self.read(run_id)

    def left(self, run: Run) -> list[str]:
        """What of the run's processes is still there, after the time in which they are to go."""
        marks = [f"{run['id']}-a{attempt['number']}" for attempt in run["attempts"]]
        wait_until(lambda: not any(map(of_attempt, marks)), GONE_SECONDS, poll_seconds=POLL_SECONDS)
        return [title for mark in marks for title in of_attempt(mark).values()]

    def undelivered(self, run: Run) -> list[str]:
        """The run's spools that hold what the platform may not have, after the time to send it."""
        marks = {f"{run['id']}-a{attempt['number']}" for attempt in run["attempts"]}

        def waiting() -> set[str]:
            return marks & set(attempts_with_spools(self.home.root, delivered=False))

        wait_until(lambda: not waiting(), GONE_SECONDS, poll_seconds=POLL_SECONDS)
        return [f"{mark}: its spool is not delivered" for mark in sorted(waiting())]

    def faults(self, run: Run, prompts_per_step: int = PROMPTS_PER_STEP) -> list[str]:
        """Points lost, doubled or changed, prompts skipped or trained twice, processes left."""
        steps = prompt_faults(self.api, run, prompts_per_step)
        found = [f"process left: {title}" for title in self.left(run)]
        found += self.undelivered(run) + differences(self.api, self.home, run)
        return found + ([f"prompts of steps {steps}"] if steps else [])

    def patiently(self, verb: str, path: str, body: Any = None) -> Any:
        """An answer of an API that may be starting again."""
        deadline = time.monotonic() + VERDICT_SECONDS
        while True:
            try:
                return self.api.get(path) if verb == "GET" else self.api.post(path, body)
            except (Refusal, httpx.HTTPError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
