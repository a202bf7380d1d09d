"""The queue's page on the fake API: what it shows, and what its buttons ask for."""

from __future__ import annotations

import json
from typing import Any

import httpx
from streamlit.testing.v1 import AppTest

from tests.dashboard.fake_api import FakeApi
from tests.dashboard.pages import open_page, text


def press(tested: AppTest, key: str) -> None:
    next(button for button in tested.button if button.key == key).click().run()
    assert not tested.exception


def asked(fake: FakeApi, method: str, path: str) -> list[Any]:
    return [
        json.loads(request.content or b"null")
        for request in fake.requests
        if request.method == method and request.url.path == f"/api/v1{path}"
    ]


def places(fake: FakeApi) -> list[str]:
    return [item["run"]["run_id"] if item["run"] else "?" for item in fake.queue["items"]]


def test_the_page_says_who_holds_what_and_who_waits_for_what() -> None:
    shown = text(open_page(FakeApi(), "queue"))
    assert "2 runs on the cluster, 5 waiting" in shown
    assert "<b>1</b> of 2 held" in shown
    assert "1 GPU and 4 CPUs" in shown
    assert "its processes are ending" in shown
    assert "Needs 2 GPUs, 1 free: run grpo-calculator (r7k2m9qd) holds 1 until it ends." in shown
    assert "A run of somebody else" in shown


def test_a_cluster_that_was_not_seen_and_an_empty_queue_are_said() -> None:
    tested = open_page(FakeApi([]), "queue")
    assert not tested.exception
    shown = text(tested)
    assert "No node is there." in shown
    assert "Nobody waits." in shown


def test_up_and_down_move_a_run_among_its_owners_runs_of_its_priority() -> None:
    fake = FakeApi()
    tested = open_page(fake, "queue")
    disabled = {button.key: button.disabled for button in tested.button if button.key}
    assert disabled["up_r9q4w1zz"]
    assert disabled["down_r9q4w1zz"]
    assert disabled["up_r5s33d01"]
    assert not disabled["down_r5s33d01"]
    press(tested, "up_r5s33d02")
    body = {"run_id": "r5s33d02", "before": "r5s33d01", "after": None}
    assert asked(fake, "POST", "/queue/moves") == [body]
    assert places(fake) == ["r9q4w1zz", "r5s33d02", "r5s33d01", "?", "r8b1gg3r"]
    press(tested, "down_r5s33d02")
    assert places(fake)[:3] == ["r9q4w1zz", "r5s33d01", "r5s33d02"]


def test_a_priority_is_changed_and_the_field_shows_what_the_api_says() -> None:
    fake = FakeApi()
    tested = open_page(fake, "queue")
    field = next(each for each in tested.selectbox if each.key == "priority_r5s33d01")
    assert field.value == "normal"
    field.set_value("low").run()
    assert asked(fake, "PATCH", "/runs/r5s33d01/priority") == [{"priority": "low"}]
    fake.queue["items"][1]["priority"] = "high"
    tested.run()
    shown = next(each for each in tested.selectbox if each.key == "priority_r5s33d01")
    assert shown.value == "high"


def test_a_run_leaves_the_queue_by_a_stop() -> None:
    fake = FakeApi()
    tested = open_page(fake, "queue")
    press(tested, "cancel_r5s33d01")
    assert "r5s33d01" not in places(fake)
    assert "sweep lr 3e-4" not in text(tested)


def test_a_refusal_is_shown_in_its_own_words() -> None:
    fake = FakeApi()
    tested = open_page(fake, "queue")
    refused = httpx.Response(409, json={"title": "Conflict", "detail": "It has started."})
    fake._stop = lambda request, key: refused  # type: ignore[method-assign]
    press(tested, "cancel_r5s33d01")
    assert "It has started." in text(tested)
    assert "The queue is as it was." in text(tested)


def test_restarts_to_come_are_shown_with_their_time_and_cause_and_can_be_cancelled() -> None:
    fake = FakeApi()
    tested = open_page(fake, "queue")
    shown = text(tested)
    assert "2 restarts to come" in shown
    assert ">11:31:05</b> after: Generator 0 failed: its process was killed" in shown
    assert ">11:32:00</b>." in shown  # whose cause is not the viewer's to read
    press(tested, "cancel_r5b6c7de")
    assert "1 restart to come" in text(tested)
