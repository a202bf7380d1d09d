"""compose.yaml and its Dockerfile, as far as files can be checked without an engine."""

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend import app as backend_app
from backend.settings import Settings as ApiSettings
from dashboard.serve import command as dashboard_command
from workers.settings import Settings as WorkerSettings

ROOT = Path(__file__).resolve().parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / ".docker" / "Dockerfile").read_text()
EXPECTED = {"postgres", "redis", "migrate", "api", "worker", "beat", "dashboard", "ray-head"}
BUILT = sorted(name for name, service in SERVICES.items() if "build" in service)


def words(service: dict[str, Any]) -> str:
    command = service.get("command", [])
    return command if isinstance(command, str) else " ".join(command)


def test_every_part_of_the_platform_is_a_service():
    assert set(SERVICES) == EXPECTED | {"ray-head-gpu"}
    assert SERVICES["ray-head-gpu"]["profiles"] == ["gpu"]
    assert all("profiles" not in SERVICES[name] for name in EXPECTED)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_lasting_service_has_a_health_check(name):
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= set(check)


def test_what_git_ignores_of_a_working_folder_does_not_get_into_an_image():
    kept_out = set((ROOT / ".dockerignore").read_text().split())
    folders = re.findall(r"^/(\w+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert {"home", "runs", "secrets"} <= set(folders) <= kept_out


def test_no_secret_is_written_down():
    for name, service in SERVICES.items():
        for variable, value in (service.get("environment") or {}).items():
            if re.search(r"PASSWORD|TOKEN|SECRET|KEY", variable):
                assert str(value).startswith("/run/secrets/"), f"{name}: {variable}"
    for url in re.findall(r"\w+://[^\s\"']*@", (ROOT / "compose.yaml").read_text()):
        assert "$$(cat /run/secrets/" in url, url


def test_secrets_are_files_that_exist_in_name_where_they_are_read():
    assert all(set(entry) == {"file"} for entry in COMPOSE["secrets"].values())
    for name, service in SERVICES.items():
        mounted = set(service.get("secrets") or [])
        assert mounted <= set(COMPOSE["secrets"]), name
        text = words(service) + str(service.get("healthcheck", ""))
        assert set(re.findall(r"/run/secrets/([a-z-]+)", text)) <= mounted, name


@pytest.mark.parametrize(
    ("written", "password"),
    [("correct horse", "correct horse"), ("correct horse\n", "correct horse"), ("", None)],
)
def test_the_api_takes_the_admins_password_from_its_file(tmp_path, monkeypatch, written, password):
    for name in SERVICES["api"]["secrets"]:
        (tmp_path / name).write_text(written if name == "admin-password" else "secret")
    script, _, _ = SERVICES["api"]["command"][2].replace("$$", "$").partition("exec ")
    script = script.replace("/run/secrets", str(tmp_path))
    said = subprocess.run(["sh", "-c", f"{script} env -0"], capture_output=True, text=True).stdout
    for pair in said.split("\0"):
        if pair.startswith("LAGOON_"):
            monkeypatch.setenv(*pair.split("=", 1))
    chosen = ApiSettings().admin_password
    assert (chosen and chosen.get_secret_value()) == password


def test_the_api_and_the_dashboard_derive_the_cookies_name_from_one_home_folder():
    homes = {SERVICES[name]["environment"]["LAGOON_HOME"] for name in ("api", "dashboard")}
    assert len(homes) == 1


def test_the_api_and_the_dashboard_agree_on_where_browsers_find_both():
    for name in ("LAGOON_PUBLIC_API_URL", "LAGOON_DASHBOARD_URL"):
        assert SERVICES["api"]["environment"][name] == SERVICES["dashboard"]["environment"][name]
        assert "${LAGOON_PUBLIC" in SERVICES["api"]["environment"][name]


def test_volumes_and_dependencies_are_declared():
    for service in SERVICES.values():
        for volume in service.get("volumes") or []:
            assert volume.split(":")[0] in COMPOSE["volumes"]
        assert set(service.get("depends_on") or {}) <= set(SERVICES)


def test_ports_are_published_on_the_loopback_address_unless_told_otherwise():
    published = {name: port for name in SERVICES for port in SERVICES[name].get("ports") or []}
    assert set(published) == {"api", "dashboard"}
    assert all(port.startswith("${LAGOON_BIND:-127.0.0.1}:") for port in published.values())


@pytest.mark.parametrize("name", BUILT)
def test_every_command_exists(name):
    text = words(SERVICES[name])
    modules = re.findall(r"python -m ([\w.]+)", text) + re.findall(r"-A ([\w.]+)", text)
    for module in modules:
        assert importlib.util.find_spec(module) is not None, module
    assert modules or "ray start" in text or name == "dashboard"


def test_what_the_commands_name_is_there():
    assert "backend.app:app_from_environment" in words(SERVICES["api"])
    assert callable(backend_app.app_from_environment)
    assert "from dashboard.serve import command" in words(SERVICES["dashboard"])
    assert "streamlit" in dashboard_command(8501, "0.0.0.0")


def test_settings_are_ones_that_somebody_reads():
    known = {
        f"LAGOON_{field.upper()}"
        for settings in (ApiSettings, WorkerSettings)
        for field in settings.model_fields
    }
    for service in SERVICES.values():
        given = service.get("environment") or {}
        assert {name for name in given if name.startswith("LAGOON_")} <= known


def test_the_image_is_made_of_files_that_exist():
    for name in BUILT:
        assert (ROOT / SERVICES[name]["build"]["dockerfile"]).is_file()
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    assert copied
    missing = {source for line in copied for source in line if not (ROOT / source).exists()}
    assert not missing
    assert (ROOT / "requirements" / "gpu.txt").is_file()
    assert "USER lagoon" in DOCKERFILE
