"""What the platform gives a driver to run, if the attempt is still that driver's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from lagoon.checkpoints import UPDATES
from lagoon.config import RunConfig
from lagoon.controls import Change
from workers.claim import FencedOut
from workers.resuming import FROM_THE_START, Candidates
from workers.sink import fences_out


def open_connection(api_url: str, token: str) -> httpx.Client:
    """A client of the API, with the attempt's credential."""
    return httpx.Client(
        base_url=api_url,
        headers={"authorization": f"Bearer {token}"},
        timeout=30.0,
        trust_env=False,  # it is our own: no proxy leads to it
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a driver is to run."""

    config: RunConfig
    candidates: Candidates = FROM_THE_START
    run_id: str = ""
    attempt: int = 1
    fencing_token: int | None = None
    """Of the credential that the platform gave this driver; None without a platform."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The Ray node of each process, where the platform has leased slots."""
    changes: tuple[Change, ...] = ()
    """What people have changed of the run's settings so far: the attempt begins with it."""


def fetch_assignment(
    client: httpx.Client, attempt_id: str, fencing_token: int | None
) -> Assignment:
    """What the attempt is to run; an API that restarts is asked again for a minute.

    Raises ``FencedOut`` when the credential is worth nothing, the attempt is over, or it was handed
    to a newer driver than the one with ``fencing_token``.
    """
    for seconds in (1, 2, 4, 8, 15, 30, None):
        try:
            answer = client.get(f"/api/v1/attempts/{attempt_id}/config")
            if answer.is_success or fences_out(answer) or seconds is None:
                break
        except httpx.TransportError:
            if seconds is None:
                raise
        time.sleep(seconds)
    if fences_out(answer):
        raise FencedOut(
            f"The platform does not give attempt {attempt_id} to this driver, which "
            f"starts nothing: {answer.status_code} {answer.text[:300]}"
        )
    answer.raise_for_status()
    found = answer.json()
    if fencing_token not in (None, found["fencing_token"]):
        raise FencedOut(
            f"Attempt {attempt_id} was handed to a newer driver (fencing token "
            f"{found['fencing_token']}, not {fencing_token}); this one starts nothing."
        )
    candidates = Candidates(
        checkpoints=tuple(map(Path, found["checkpoints"])),
        updates=tuple(Path(folder) / UPDATES for folder in found["earlier_folders"]),
        owns=found["owns_checkpoints"],
        is_fork=not found["owns_checkpoints"],
    )
    config = RunConfig.stored(found["config"])
    return Assignment(
        config,
        candidates,
        run_id=found["run_id"],
        attempt=found["attempt"],
        fencing_token=found["fencing_token"],
        places=found["places"],
        changes=tuple(Change.model_validate(each) for each in found["changes"]),
    )
