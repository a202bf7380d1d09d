"""A page of the dashboard in Streamlit's test harness, on top of a fake API."""

from streamlit.testing.v1 import AppTest

from dashboard.client import Api
from tests.dashboard.fake_api import TOKEN, FakeApi


def _script(client: object, page: str) -> None:
    from zoneinfo import ZoneInfo  # noqa: PLC0415  the harness runs this function's source alone

    from dashboard import navigation, theme  # noqa: PLC0415
    from dashboard.settings import Settings  # noqa: PLC0415

    theme.configure()
    settings = Settings.from_environment({})
    navigation.show(client, settings, ZoneInfo("Europe/Berlin"), first=page)  # type: ignore[arg-type]


def open_page(
    fake: FakeApi, page: str = "experiments", *, signed_in: bool = True, **query: str
) -> AppTest:
    """Run the page once on the fake API, with ``query`` in its URL."""
    return open_page_on(Api(fake.client(), TOKEN if signed_in else None), page, **query)


def open_page_on(api: Api, page: str, **query: str) -> AppTest:
    """Run the page once on any API, with ``query`` in its URL."""
    tested = AppTest.from_function(_script, default_timeout=20, args=(api, page))
    for name, value in query.items():
        tested.query_params[name] = value
    return tested.run()


def text(tested: AppTest) -> str:
    """Everything a reader sees, with the markup of Lagoon's own pieces."""
    kinds = (tested.html, tested.markdown, tested.caption, tested.code, tested.error)
    values = [str(element.value) for kind in kinds for element in kind]
    return "\n".join(value for value in values if "--lg-deep" not in value)


def click(tested: AppTest, label: str) -> None:
    """Press the button called ``label`` and let the page run."""
    next(button for button in tested.button if button.label == label).click().run()
