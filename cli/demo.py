"""The demo: one experiment with a run of each family, made once per home folder."""

from __future__ import annotations

from cli.client import Api
from cli.home import Home
from cli.output import Refusal

TITLE = "Demo"
NOTES = (
    "Two runs that need nothing but this machine. GRPO teaches a small policy to use a "
    "calculator whose answers take a while; evolution strategies teach the same policy 4×4 "
    "Sudoku without a gradient. They run one after the other; each improves within minutes."
)
RUNS = (
    ("GRPO on the calculator", "grpo-calculator"),
    ("Evolution strategies on Sudoku", "es-sudoku4"),
)


def make_demo(home: Home, api: Api) -> bool:
    """Make the demo unless this home has had it; whether it was made now.

    Deleted runs do not come back. Every request carries a key of its own, so that an attempt that
    broke off half-way is completed and not repeated. Raises ``Refusal`` when the API has not the
    presets, before anything is made.
    """
    done = home.root / "demo-made"
    if done.exists():
        return False
    presets = {preset["name"]: preset["config"] for preset in api.get("/presets")["items"]}
    missing = [preset for _, preset in RUNS if preset not in presets]
    if missing:
        raise Refusal(f"The API has no preset called {' or '.join(missing)}.")
    experiment = api.post(
        "/experiments", {"title": TITLE, "notes": NOTES}, idempotency_key="demo-experiment"
    )
    for name, preset in RUNS:
        body = {"name": name, "experiment_id": experiment["id"], "config": presets[preset]}
        api.post("/runs", body, idempotency_key=f"demo-{preset}")
    done.touch()
    return True
