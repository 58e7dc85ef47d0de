"""The page opens in the browser of the person, and never in the terminal of the server."""

import sys
import threading
import webbrowser

import pytest

from inlay.render.explorer import browser

URL = "http://127.0.0.1:1/token/"


class RecordedBrowser(webbrowser.BaseBrowser):
    """A browser that records what it opens."""

    def __init__(self) -> None:
        super().__init__("recorded")
        self.opened = threading.Event()
        self.urls: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.urls.append(url)
        self.opened.set()
        return True


@pytest.fixture(autouse=True)
def linux_with_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a desktop, whatever this machine is."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("BROWSER", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


def test_a_browser_with_a_window_opens_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedBrowser()
    monkeypatch.setattr(webbrowser, "get", lambda: recorded)
    assert browser.open_in_browser(URL)
    assert recorded.opened.wait(30)
    assert recorded.urls == [URL]


def test_a_browser_in_the_terminal_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("w3m"))
    assert not browser.open_in_browser(URL)


def test_nothing_opens_without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    def get() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", get)
    assert not browser.open_in_browser(URL)


def test_nothing_opens_without_a_display_unless_browser_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedBrowser()
    monkeypatch.setattr(webbrowser, "get", lambda: recorded)
    monkeypatch.delenv("DISPLAY")
    assert not browser.open_in_browser(URL)
    monkeypatch.setenv("BROWSER", "recorded")
    assert browser.open_in_browser(URL)
    assert recorded.opened.wait(30)


@pytest.mark.parametrize(
    ("platform", "connection", "expected"), [("darwin", None, True), ("darwin", "1", False), ("linux", None, True)]
)
def test_the_display_of_each_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, connection: str | None, expected: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    if connection is not None:
        monkeypatch.setenv("SSH_CONNECTION", connection)
    assert browser.has_display() is expected
