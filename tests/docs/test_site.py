"""The site builds without a warning, and works in a browser: search, both themes, three sizes, no other host."""

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from inlay_docs.page_expansion import read_catalog

from tests.support.browser import open_page, require_accessible
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("furo")
pytest.importorskip("myst_parser")
pytestmark = pytest.mark.heavy

PAGES = ["index.html", "tutorial.html", "reference/memory.html", "errors.html", "benchmarks.html", "cli.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "-n", "-E", "-q", "--keep-going", "-d", str(folder / "cache"), "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder / "html"


def build_page(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Build a site of one page."""
    (folder / "source").mkdir()
    (folder / "source" / "index.md").write_text(f"# Page\n\n{text}\n")
    settings = (
        f'import sys\nsys.path.insert(0, "{ROOT / "docs" / "_ext"}")\nextensions = ["myst_parser", "inlay_docs"]\n'
    )
    (folder / "source" / "conf.py").write_text(settings)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(folder / "source"), str(folder / "html")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("{inlay-picture} nchx 1x2x3x4", "inlay-picture nchx 1x2x3x4: unknown alias 'nchx': did you mean nchw?"),
        ("{inlay-picture} inlay.nothing", "inlay-picture inlay.nothing: module 'inlay' has no attribute 'nothing'"),
        (
            '{inlay-chart} index.md\n:heading: "## None"\n:columns: 2\n:names: a\n:title: Chart',
            "inlay-chart index.md: the page has no heading '## None'",
        ),
    ],
)
def test_a_mistake_in_a_drawing_stops_the_build(tmp_path: Path, directive: str, text: str) -> None:
    done = build_page(tmp_path, f"```{directive}\n```")
    assert done.returncode != 0
    assert text in done.stderr


def test_the_explorer_is_embedded(tmp_path: Path) -> None:
    if subprocess.run(
        [sys.executable, "-m", "inlay", "explore", "--help"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this Inlay has no explorer")
    done = build_page(tmp_path, "```{inlay-explorer} nChw8c 2x17x5x4\n:height: 500\n```")
    assert (done.returncode, done.stderr) == (0, "")
    (explorer,) = (tmp_path / "html" / "explorers").glob("*.html")
    frame = f'<iframe class="inlay-explorer" src="explorers/{explorer.name}" title="Explorer of nChw8c 2x17x5x4"'
    assert frame in (tmp_path / "html" / "index.html").read_text()


def test_every_public_name_can_be_linked_to(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    names = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    expected = {f"{module}.{name}" for module, listed in read_catalog().modules.items() for name in listed}
    assert expected - names == set()
    assert "inlay.MemoryDesc.reshape" in names


def test_no_page_loads_from_another_host(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"")
    imported = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//")
    assert [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())] == []
    assert [sheet.name for sheet in site.rglob("*.css") if imported.search(sheet.read_text())] == []


def test_links_to_other_hosts_are_listed(site: Path) -> None:
    lines = (site / "external-links.txt").read_text().splitlines()
    assert lines == sorted(lines)
    assert all(re.fullmatch(r"https?://\S+  \S+(, \S+)*", line) for line in lines)
    assert lines


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which a server of this process serves the site."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_their_window(chromium: "Browser", address: str, size: str, theme: str) -> None:
    with open_page(chromium, address, size, color_scheme=theme) as page:
        for path in PAGES:
            page.goto(address + path)
            assert page.title()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible(chromium: "Browser", address: str, theme: str) -> None:
    with open_page(chromium, address, color_scheme=theme) as page:
        for path in PAGES:
            page.goto(address + path)
            require_accessible(page)


def test_the_search_finds_a_name(chromium: "Browser", address: str, size: str) -> None:
    with open_page(chromium, f"{address}index.html", size) as page:
        if size != "desktop":
            page.locator("label[for=__navigation]:visible").first.click()
        field = page.locator("input[name=q]:visible").first
        field.fill("Reorder")
        field.press("Enter")
        page.wait_for_selector("#search-results li a")
        titles = page.locator("#search-results li a").all_inner_texts()
        assert titles[0] == "inlay.Reorder"
        page.locator("#search-results li a", has_text=re.compile(r"^inlay\.Reorder$")).first.click()
        page.wait_for_selector("dt[id='inlay.Reorder']")
        assert page.url.endswith("reference/memory.html#inlay.Reorder")


def test_the_search_finds_words_of_an_error(chromium: "Browser", address: str) -> None:
    with open_page(chromium, f"{address}search.html?q=overlapping+elements") as page:
        page.locator("#search-results li a").get_by_text("Error texts", exact=True).first.wait_for()


def test_the_button_changes_the_theme_of_page_and_pictures(chromium: "Browser", address: str) -> None:
    color = "getComputedStyle(document.querySelector('.inlay-picture .page')).fill"
    background = "getComputedStyle(document.body).backgroundColor"
    with open_page(chromium, f"{address}index.html") as page:
        before = page.evaluate(f"[{color}, {background}]")
        for _ in range(3):
            page.locator("button.theme-toggle:visible").first.click()
            if page.evaluate("document.body.dataset.theme") == "dark":
                break
        after = page.evaluate(f"[{color}, {background}]")
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_picture_is_wider_than_a_phone_and_is_scrolled_inside_of_the_page(chromium: "Browser", address: str) -> None:
    with open_page(chromium, f"{address}pictures.html", "phone") as page:
        assert page.evaluate("(f => f.scrollWidth > f.clientWidth)(document.querySelector('.inlay-figure'))")
