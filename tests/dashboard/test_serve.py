import pytest
from streamlit.testing.v1 import AppTest

from backend.settings import Settings as ApiSettings
from dashboard import serve
from dashboard.settings import Settings
from dashboard.views.sign_in import return_url, ticket_url


def test_the_process_listens_on_this_machine_only_and_reports_to_nobody() -> None:
    options = serve.options(8777)
    assert options["server.address"] == "127.0.0.1"
    assert options["server.port"] == "8777"
    assert options["server.headless"] == "true"
    assert options["browser.gatherUsageStats"] == "false"
    assert options["server.enableCORS"] == "true"
    assert options["server.enableXsrfProtection"] == "true"
    assert options["client.showErrorDetails"] == "none"


def test_the_command_runs_the_script_of_this_package() -> None:
    command = serve.command(8777)
    assert command[1:4] == ["-m", "streamlit", "run"]
    assert command[4].endswith("dashboard/app.py")
    assert serve.APP.exists()


def test_addresses_given_to_the_process_are_the_ones_it_reads() -> None:
    given = serve.environment(
        api_url="http://api:8000/",
        dashboard_url="https://lagoon.example/",
        public_api_url="https://api.example",
    )
    read = Settings.from_environment(given)
    assert read.api_url == "http://api:8000"
    assert read.public_api_url == "https://api.example"
    assert read.dashboard_url == "https://lagoon.example"


def test_the_browser_reaches_the_api_where_the_dashboard_does_unless_told() -> None:
    read = Settings.from_environment({"LAGOON_API_URL": "http://127.0.0.1:9"})
    assert read.public_api_url == "http://127.0.0.1:9"


@pytest.mark.parametrize("given", [{}, {"LAGOON_HOME": "/srv/lagoon/"}, {"LAGOON_HOME": "~/here"}])
def test_the_dashboard_reads_the_cookie_that_the_api_sets(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAGOON_HOME", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    api = ApiSettings(database_url="postgresql://db/lagoon", broker_url="redis://broker")  # type: ignore[arg-type]  # strings are parsed
    assert Settings.from_environment(given).session_cookie == api.session_cookie


def test_two_homes_on_one_host_have_cookies_of_two_names() -> None:
    names = {
        Settings.from_environment({"LAGOON_HOME": home}).session_cookie
        for home in ("/srv/one", "/srv/two")
    }
    assert len(names) == 2


def test_sign_in_comes_back_to_the_page_that_was_asked_for() -> None:
    back = return_url("http://127.0.0.1:2", "http://localhost:2/run", {"run": "r1", "tab": "pool"})
    assert back == "http://127.0.0.1:2/run?run=r1&tab=pool"
    assert return_url("http://127.0.0.1:2", None, {}) == "http://127.0.0.1:2"


def test_the_ticket_address_is_escaped() -> None:
    url = ticket_url("http://a", "t&x", "http://b/?c=d")
    assert url == "http://a/api/v1/signin?ticket=t%26x&next=http%3A%2F%2Fb%2F%3Fc%3Dd"


@pytest.mark.parametrize(
    "name", ["LAGOON_API_URL", "LAGOON_PUBLIC_API_URL", "LAGOON_DASHBOARD_URL"]
)
def test_an_address_that_is_none_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an http:// or https:// URL"):
        Settings.from_environment({name: "127.0.0.1:8000"})


def test_the_page_says_which_setting_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAGOON_API_URL", "nonsense")
    shown = AppTest.from_file(str(serve.APP)).run()
    assert not shown.exception
    assert "LAGOON_API_URL must be an http" in shown.error[0].value
