"""A browser and a running explorer for the tests that drive the page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import SIZES, run_chromium
from tests.support.explorer_process import ExplorerProcess, serve_explorer

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Browser]":
    """Chromium, for all tests of the run."""
    with run_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def explorer(chromium: "Browser") -> Iterator[ExplorerProcess]:
    """A running explorer, for all tests of the run."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    with serve_explorer() as process:
        yield process


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    """Each size of window."""
    return str(request.param)
