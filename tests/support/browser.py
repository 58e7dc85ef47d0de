"""Debian's Chromium, driven by Playwright; pages whose mistakes and requests are recorded."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = {"phone": (390, 844), "tablet": (900, 1100), "desktop": (1440, 900)}
"""Sizes of windows in CSS pixels."""


@contextmanager
def run_chromium() -> "Iterator[Browser]":
    """Run Chromium until the end of the block; skip the test where it or Playwright is absent."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class RecordedPage:
    """A page, with the messages of its console and the addresses that it requested."""

    page: "Page"
    """The page."""
    problems: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions."""
    requests: list[str] = field(default_factory=list)
    """Every address that was requested."""

    def check(self, host: str) -> None:
        """Fail if the console has a message, or if another host was asked."""
        assert self.problems == []
        schemes = ("data", "blob", "file")
        others = [url for url in self.requests if urlsplit(url).netloc != host and urlsplit(url).scheme not in schemes]
        assert others == []


@contextmanager
def open_page(browser: "Browser", url: str, size: str = "desktop", **options: Any) -> Iterator[RecordedPage]:
    """Open a page in a new context; at the end of the block, check its console and its requests."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    recorded = RecordedPage(context.new_page())
    page = recorded.page
    page.on("console", lambda message: _note(recorded, message.type, message.text))
    page.on("pageerror", lambda error: recorded.problems.append(str(error)))
    page.on("request", lambda request: recorded.requests.append(request.url))
    try:
        page.goto(url)
        yield recorded
        recorded.check(urlsplit(url).netloc)
    finally:
        context.close()


def _note(recorded: RecordedPage, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        recorded.problems.append(text)
