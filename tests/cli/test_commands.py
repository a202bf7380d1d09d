"""The commands against a fake API: what they ask, what they say, how they end."""

import json
import os
from pathlib import Path

import httpx
import pytest
import typer

from cli.main import app, main
from cli.processes import Stack, record
from tests.cli.fake_api import FakeApi, page, problem, run, signed_in_home
from workers.models.recipes import fingerprint


def lagoon(api: FakeApi, folder: Path, *arguments: str) -> int:
    """The exit code of the command, run in a home folder that is signed in."""
    home = signed_in_home(folder)
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--home", str(home.root)], api)
    return int(ended.value.code or 0)


def test_runs_list_json_is_a_list_over_all_pages(tmp_path, capsys):
    api = FakeApi({"GET /runs": [page(run(id="r2"), cursor="c"), page(run(id="r1"))]})
    assert lagoon(api, tmp_path, "runs", "list", "--json") == 0
    runs = json.loads(capsys.readouterr().out)
    assert [(item["id"], item["name"]) for item in runs] == [("r2", "first"), ("r1", "first")]
    assert api.requests[1].url.params["cursor"] == "c"
    assert api.requests[0].headers["Authorization"] == "Bearer lgk_x.y"


def test_runs_list_stops_at_its_limit(tmp_path, capsys):
    api = FakeApi({"GET /runs": page(run(), cursor="more")})
    assert lagoon(api, tmp_path, "runs", "list", "--limit", "1", "--status", "running") == 0
    assert len(api.requests) == 1
    assert api.requests[0].url.params["limit"] == "1"
    assert api.requests[0].url.params["status"] == "running"
    assert "first" in capsys.readouterr().out


def test_runs_show_json_holds_what_scripts_read(tmp_path, capsys):
    api = FakeApi({"GET /runs/r1": run()})
    assert lagoon(api, tmp_path, "runs", "show", "r1", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    for name in ("name", "status", "reason", "attempts", "step"):
        assert name in shown
    assert (shown["first_heldout_success"], shown["last_heldout_success"]) == (0.25, 0.5)


def test_runs_show_says_that_a_run_is_paused_and_how_it_goes_on(tmp_path, capsys):
    for is_paused in (True, False):
        api = FakeApi({"GET /runs/r1": run(is_paused=is_paused)})
        assert lagoon(api, tmp_path, "runs", "show", "r1") == 0
        assert ("paused: `lagoon runs resume r1`" in capsys.readouterr().out) == is_paused


def test_runs_show_says_what_went_wrong(tmp_path, capsys):
    failed = run(status="failed", reason="The generator died.", traceback="Traceback ...")
    assert lagoon(FakeApi({"GET /runs/r1": failed}), tmp_path, "runs", "show", "r1") == 0
    said = capsys.readouterr().out
    assert "failed. The generator died." in said
    assert "Traceback ..." in said
    assert "0.250 at first, 0.500 at last" in said
    assert "checkpoint 7: step 4 (best) in /w/4" in said


def test_a_missing_run_is_one_line_and_no_traceback(tmp_path, capsys):
    api = FakeApi({"GET /runs/nope": problem(404, "There is no run nope")})
    assert lagoon(api, tmp_path, "runs", "show", "nope") == 1
    assert capsys.readouterr().err == "There is no run nope.\n"


def test_a_refused_config_names_its_fields(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("method: {name: grpo, group_size: 1}\n")
    errors = [{"fields": ["method.group_size", "method.name"], "message": "a group of 1 is no use"}]
    api = FakeApi({"POST /runs": problem(422, "The configuration is not valid", errors)})
    assert lagoon(api, tmp_path, "runs", "create", str(file)) == 1
    assert "  method.group_size, method.name: a group of 1 is no use" in capsys.readouterr().err


def test_create_sends_the_file_as_it_is(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("method: {name: es}\nseed: 3\n")
    api = FakeApi({"POST /runs": httpx.Response(201, json=run(status="queued"))})
    options = ("--name", "N", "--experiment", "e1", "--json")
    assert lagoon(api, tmp_path, "runs", "create", str(file), *options) == 0
    sent = {"name": "N", "experiment_id": "e1", "config": {"method": {"name": "es"}, "seed": 3}}
    assert api.bodies("POST /runs") == [sent]
    assert json.loads(capsys.readouterr().out)["status"] == "queued"


@pytest.mark.parametrize(("last", "code"), [("finished", 0), ("failed", 1), ("stopped", 1)])
def test_create_with_wait_ends_as_the_run_did(tmp_path, last, code):
    file = tmp_path / "mine.yaml"
    file.write_text("{}")
    api = FakeApi({"POST /runs": run(status="queued"), "GET /runs/r1": run(status=last)})
    assert lagoon(api, tmp_path, "runs", "create", str(file), "--wait") == code


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("a: [", "is not valid YAML"), ("- 1", "must hold a run configuration")],
)
def test_a_file_that_is_no_config_is_refused_before_anything_is_sent(
    tmp_path, capsys, text, complaint
):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    api = FakeApi({})
    assert lagoon(api, tmp_path, "runs", "create", str(file)) == 1
    assert complaint in capsys.readouterr().err
    assert api.requests == []


def test_stop_and_delete(tmp_path, capsys):
    api = FakeApi(
        {
            "POST /runs/r1/stop": httpx.Response(202, json=run(status="stopping")),
            "GET /runs/r1": run(status="stopped"),
            "DELETE /runs/r1": {"freed_bytes": 0, "left_behind": []},
        }
    )
    assert lagoon(api, tmp_path, "runs", "stop", "r1", "--wait") == 0
    assert "Run r1 is stopped." in capsys.readouterr().out
    assert lagoon(api, tmp_path, "runs", "delete", "r1", "--yes") == 0
    assert api.requests[-1].method == "DELETE"


def test_deleting_a_run_says_what_it_freed_and_what_stayed_behind(tmp_path, capsys):
    answers = [
        {"freed_bytes": 12345, "left_behind": []},
        {"freed_bytes": 0, "left_behind": ["/home/x/r1-a1 (Permission denied)"]},
    ]
    api = FakeApi({"GET /runs/r1": run(status="stopped"), "DELETE /runs/r1": answers})
    assert lagoon(api, tmp_path, "runs", "delete", "r1", "--yes") == 0
    assert "12,345 bytes on disk are free again" in capsys.readouterr().out
    assert lagoon(api, tmp_path, "runs", "delete", "r1", "--yes") == 1
    assert "/home/x/r1-a1 (Permission denied)" in capsys.readouterr().err


def test_a_run_that_may_not_be_deleted_is_refused_in_words(tmp_path, capsys):
    api = FakeApi({"GET /runs/r1": run(), "DELETE /runs/r1": problem(409, "The run is running.")})
    assert lagoon(api, tmp_path, "runs", "delete", "r1", "--yes") == 1
    assert "The run is running." in capsys.readouterr().err


def test_logs_follow_until_the_run_has_ended(tmp_path, capsys):
    def lines(*texts: str, after: int) -> dict[str, object]:
        return {"items": [{"line": text} for text in texts], "next_after": after}

    logs = [lines("one", after=1), lines("two", after=2), lines(after=2)]
    api = FakeApi({"GET /runs/r1/log": logs, "GET /runs/r1": run(status="finished")})
    assert lagoon(api, tmp_path, "runs", "logs", "r1", "--follow") == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert api.requests[2].url.params["after"] == "1"


def test_a_followed_log_as_json_is_one_object_a_line(tmp_path, capsys):
    logs = [page({"n": 1, "line": "one"}) | {"next_after": 1}, page() | {"next_after": 1}]
    logs.insert(1, page({"n": 2, "line": "two"}) | {"next_after": 2})
    api = FakeApi({"GET /runs/r1/log": logs, "GET /runs/r1": run(status="finished")})
    assert lagoon(api, tmp_path, "runs", "logs", "r1", "--follow", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"n": 1, "line": "one"}, {"n": 2, "line": "two"}]


def test_keys_are_made_listed_and_revoked(tmp_path, capsys):
    key = {"id": "k1", "name": "laptop", "created_at": "2030-01-01T00:00:00Z"}
    api = FakeApi(
        {
            "POST /api-keys": httpx.Response(201, json=key | {"token": "lgk_k1.secret"}),
            "GET /api-keys": page(key | {"last_used_at": None}),
            "DELETE /api-keys/k1": httpx.Response(204),
        }
    )
    assert lagoon(api, tmp_path, "keys", "create", "laptop") == 0
    assert "lgk_k1.secret" in capsys.readouterr().out
    assert lagoon(api, tmp_path, "keys", "create", "laptop", "--json") == 0
    assert json.loads(capsys.readouterr().out)["token"] == "lgk_k1.secret"
    assert api.bodies("POST /api-keys") == [{"name": "laptop"}] * 2
    assert lagoon(api, tmp_path, "keys", "list") == 0
    assert "laptop" in capsys.readouterr().out
    assert lagoon(api, tmp_path, "keys", "list", "--json") == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == ["k1"]
    assert lagoon(api, tmp_path, "keys", "revoke", "k1") == 0
    assert api.requests[-1].method == "DELETE"
    assert lagoon(api, tmp_path, "keys", "revoke", "k2") == 1


@pytest.mark.parametrize("is_json", [True, False])
def test_the_status_of_an_api_that_does_not_answer_is_told_and_not_zero(tmp_path, capsys, is_json):
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    owner = record("up", os.getpid())
    assert owner is not None
    Stack("a mark that nobody has", owner).save(signed_in_home(tmp_path).stack_file)
    options = ["--json"] if is_json else []
    assert lagoon(FakeApi({"GET /readyz": away}), tmp_path, "status", *options) == 1
    said = capsys.readouterr().out
    assert "does not answer (ConnectError)" in said
    if is_json:
        assert not json.loads(said)["checks"]["api"]["ok"]


def test_experiments_are_listed_made_and_shown(tmp_path, capsys):
    experiment = {"id": "e1", "title": "Mine", "notes": "*n*", "num_runs": 1}
    api = FakeApi(
        {
            "GET /experiments": page(experiment),
            "POST /experiments": httpx.Response(201, json=experiment),
            "GET /experiments/e1": experiment,
            "GET /runs": page(run()),
        }
    )
    assert lagoon(api, tmp_path, "experiments", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [experiment]
    assert lagoon(api, tmp_path, "experiments", "create", "Mine", "--notes", "*n*") == 0
    assert api.bodies("POST /experiments") == [{"title": "Mine", "notes": "*n*"}]
    assert lagoon(api, tmp_path, "experiments", "show", "e1", "--json") == 0
    assert api.requests[-1].url.params["experiment_id"] == "e1"


def test_storage_is_shown_by_run_and_as_a_whole(tmp_path, capsys):
    sizes = {
        "checkpoint_bytes": 2_400_000_000,
        "trajectory_bytes": 61_000,
        "log_bytes": 0,
        "metric_bytes": 1,
        "spool_bytes": 12,
        "total_bytes": 2_400_061_013,
    }
    found = {
        "num_runs": 1,
        "total": sizes,
        "runs": [{"run_id": "r1", "name": "first", "owner": "ada", "status": "failed", **sizes}],
        "home": {
            "database_bytes": 412_000_000,
            "disk_free_bytes": 81_000_000_000,
            "disk_total_bytes": 250_000_000_000,
            "checkpoint_quota_bytes": None,
        },
    }
    api = FakeApi({"GET /storage": found})
    assert lagoon(api, tmp_path, "storage") == 0
    said = capsys.readouterr().out
    for words in ("first", "2.4 GB", "61 kB", "1 byte", "without a quota", "81 GB of 250 GB free"):
        assert words in said
    assert lagoon(api, tmp_path, "storage", "--json") == 0
    assert json.loads(capsys.readouterr().out) == found
    assert api.requests[0].url.params["limit"] == "50"
    of_member = FakeApi({"GET /storage": {**found, "home": None}})
    assert lagoon(of_member, tmp_path, "storage") == 0
    assert "database" not in capsys.readouterr().out


def test_an_api_that_is_away_is_said_in_words(tmp_path, capsys):
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    assert lagoon(FakeApi({"GET /runs": away}), tmp_path, "runs", "list") == 1
    said = capsys.readouterr().err
    assert "does not answer (ConnectError)" in said
    assert "lagoon up" in said


def test_a_home_that_was_never_up_is_said_in_words(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["runs", "list", "--home", str(tmp_path / "new")], FakeApi({}))
    assert ended.value.code == 1
    assert "Start it with: lagoon up" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["methods", "environments"])
def test_the_catalogue_needs_no_api(tmp_path, capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--json", "--home", str(tmp_path)])
    rows = json.loads(capsys.readouterr().out)
    assert {"grpo", "es"} <= {row["name"] for row in rows} or {"calculator", "sudoku4"} <= {
        row["name"] for row in rows
    }
    assert all(row["schema"]["properties"] for row in rows)


def test_models_are_listed_with_what_is_built(tmp_path, capsys):
    def built() -> dict[str, bool]:
        with pytest.raises(SystemExit):
            main(["models", "list", "--json", "--home", str(tmp_path)])
        return {row["name"]: row["built"] for row in json.loads(capsys.readouterr().out)}

    shelf = tmp_path / "models" / "tiny"
    (shelf / "by-an-older-recipe").mkdir(parents=True)
    (shelf / "by-an-older-recipe" / "build.json").write_text("{}")
    assert built() == {"tiny": False, "smollm2-135m-instruct": False}
    (shelf / fingerprint("tiny")).mkdir()
    assert built() == {"tiny": True, "smollm2-135m-instruct": False}


def test_building_an_unknown_model_names_the_known_ones(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["models", "build", "huge", "--home", str(tmp_path)])
    assert ended.value.code == 1
    assert "tiny, smollm2-135m-instruct" in capsys.readouterr().err


def commands_of(group, path=()):
    """Every command below a group, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_takes_a_home_folder_and_every_reading_one_gives_json():
    found = dict(commands_of(typer.main.get_command(app)))
    assert len(found) > 15
    options = {name: {o for p in c.params for o in p.opts} for name, c in found.items()}
    assert {name for name, taken in options.items() if "--home" not in taken} == set()
    reading = {name for name in found if name.split()[-1] in ("list", "show", "status")}
    assert {name for name in reading if "--json" not in options[name]} == set()
