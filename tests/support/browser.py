"""A browser for tests of pages: Debian's Chromium, driven by Playwright; tests are skipped where one is absent."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SIZES = {"wide": (1440, 900), "medium": (1024, 700), "phone": (390, 844)}
"""Width and height of windows, in pixels."""


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start the browser, and close it at the end."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Any, url: str, size: str = "wide", **options: Any) -> Iterator[Any]:
    """Open a page in a window of its own, and require that it logs nothing and asks no other place for anything."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    yield page
    context.close()
    assert messages == []
    assert {request.partition("#")[0] for request in requests if not request.startswith("data:")} == {url}


def require_accessible(page: Any) -> None:
    """Require that axe finds no serious fault."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page).response["violations"]
    serious = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
    assert [one for one, fault in zip(serious, found, strict=True) if fault["impact"] in ("serious", "critical")] == []
