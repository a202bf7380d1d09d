"""The real API and its Postgres, for the tests that check the dashboard against them; and a
Streamlit test harness that does not read every installed distribution anew for each page."""

import sys
from collections.abc import Iterator

import pytest
from streamlit.components.v2.component_manager import BidiComponentManager

from tests.backend.conftest import api, database_url, postgres_url, url

__all__ = [
    "api",
    "database_url",
    "main_module_as_it_was",
    "postgres_url",
    "url",
    "without_component_search",
]


@pytest.fixture(autouse=True)
def main_module_as_it_was() -> Iterator[None]:
    """Streamlit puts its script in the place of ``__main__``; a process spawned later by another
    test would run that script."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session", autouse=True)
def without_component_search() -> Iterator[None]:
    """The dashboard has no custom components; looking for some takes 0.4 s for every page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BidiComponentManager, "discover_and_register_components", lambda *args, **options: None
        )
        yield
