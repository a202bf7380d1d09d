"""``lagoon runs resume`` and ``lagoon runs fork``."""

from tests.cli.fake_api import FakeApi, run
from tests.cli.test_commands import lagoon


def test_a_run_is_resumed_from_its_newest_checkpoint_or_from_another(tmp_path, capsys):
    queued = run(status="queued", reason="Resumed by ada.")
    for arguments, sent in (([], None), (["--checkpoint", "7"], 7)):
        api = FakeApi({"POST /runs/r1/resume": queued})
        assert lagoon(api, tmp_path, "runs", "resume", "r1", *arguments) == 0
        assert api.bodies("POST /runs/r1/resume") == [{"checkpoint_id": sent}]
        assert capsys.readouterr().out == "Run r1 is queued. Resumed by ada.\n"


def test_a_run_is_forked_from_its_newest_checkpoint_and_needs_one(tmp_path, capsys):
    answers = {
        "GET /runs/r1": run(experiment_id="e1"),
        "POST /runs/r1/fork": run(id="r2", name="a-fork"),
    }
    api = FakeApi(answers)
    assert lagoon(api, tmp_path, "runs", "fork", "r1", "--name", "a-fork") == 0
    [body] = api.bodies("POST /runs/r1/fork")
    assert (body["checkpoint_id"], body["name"], body["config"]) == (7, "a-fork", None)
    assert capsys.readouterr().out.startswith("Run r2 (a-fork) is ")
    api = FakeApi({"GET /runs/r1": run(checkpoints=[])})
    assert lagoon(api, tmp_path, "runs", "fork", "r1") == 1
    assert "has no checkpoint to begin with" in capsys.readouterr().err
