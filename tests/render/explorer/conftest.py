"""A running explorer for the tests that drive the page."""

from collections.abc import Iterator

import pytest

from tests.support.explorer_process import ExplorerProcess, serve_explorer


@pytest.fixture(scope="module")
def explorer() -> Iterator[ExplorerProcess]:
    """A running explorer, for all tests of a module."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    with serve_explorer() as process:
        yield process
