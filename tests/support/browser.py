"""Chromium, driven by Playwright: pages whose console and requests are checked; tests are skipped without it."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = {"phone": (390, 844), "tablet": (900, 1100), "desktop": (1440, 900)}
"""Width and height of windows, in CSS pixels."""


@contextmanager
def run_chromium() -> "Iterator[Browser]":
    """Run Chromium until the end of the block; skip the test where it or Playwright is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: "Browser", url: str, size: str = "desktop", *, expected: str | None = None, **options: Any
) -> "Iterator[Page]":
    """Open a page in a window of its own. At the end of the block, require that it is a page without faults.

    Faults are exceptions, errors and warnings of the console, failed requests, and requests to another host; of a page
    in a file, requests of other files too. `expected` is a pattern of faults that the test provokes.
    """
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page, faults, requests = context.new_page(), list[str](), list[str]()
    page.on("console", lambda one: faults.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("requestfailed", lambda one: faults.append(f"{one.url}: {one.failure}"))
    page.on("request", lambda one: requests.append(one.url))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    # A request is aborted where the next page is opened before it ends.
    assert [one for one in faults if "net::ERR_ABORTED" not in one and not re.search(expected or r"(?!)", one)] == []
    assert [one for one in requests if not _is_own(one, url)] == []


def _is_own(request: str, url: str) -> bool:
    """True if a page may make a request: it has the data itself, or they are of its host, or they are its own file."""
    if request.startswith(("data:", "blob:")):
        return True
    if url.startswith("file:"):
        return urldefrag(request).url == urldefrag(url).url
    return urlsplit(request)[:2] == urlsplit(url)[:2]


def require_accessible(page: "Page") -> None:
    """Require that axe finds no serious fault; a page with a content security policy is opened with `bypass_csp`."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    faults = [one for one in axe.Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical")]
    found = [(one["id"], node["html"][:200], node.get("failureSummary")) for one in faults for node in one["nodes"]]
    assert found == []
