"""What the explorer writes and computes in Chromium: pages in a file, pictures, and offsets of random layouts."""

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from inlay.render.explorer.page import save_page
from inlay.render.explorer.request import make_request
from tests.support.browser import open_page
from tests.support.explorer_process import ExplorerProcess
from tests.support.explorer_script import PROBE, check_answers, random_cases

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.heavy

_SVG = "{http://www.w3.org/2000/svg}"


def test_script_equals_python_on_ten_thousand_layouts(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """In the browser, too, offsets, digits, inverse and formulas of 10,000 random layouts are those of Python."""
    cases = random_cases(24, 10_000)
    program = f"""async (text) => {{
      const load = (name) => import(new URL(`page/${{name}}`, location.href));
      return JSON.stringify(({PROBE})(JSON.parse(text), await load("layout.js"), await load("formula.js")));
    }}"""
    with open_page(chromium, explorer.url) as page:
        page.wait_for_selector(".formula .facts li")
        text = json.dumps([case.json for case in cases])
        check_answers(cases, json.loads(page.evaluate(program, text)))


def test_page_in_a_file(chromium: "Browser", tmp_path: Path, size: str) -> None:
    """A page in a file shows its layouts and the reorder, links element and offset, and asks for nothing."""
    path = tmp_path / "layouts.html"
    requests = [make_request(tag, "2x16x5x4", "f32", None) for tag in ("nchw", "nChw8c", "nhwc")]
    save_page(path, requests)
    with open_page(chromium, path.as_uri(), size) as page:
        page.wait_for_selector(".formula .facts li")
        assert page.locator(".formula .filled").all_inner_texts() == [
            "320*1 + 20*15 + 4*4 + 3 = 639",
            "320*1 + 160*(15//8) + 32*4 + 8*3 + 15%8 = 639",
        ]
        assert page.locator("#reorder-card").get_by_text("tile of").count() > 0
        page.locator("#source").focus()
        page.keyboard.press("Control+Home")
        page.keyboard.press("ArrowRight")
        assert page.locator(".formula .filled").all_inner_texts() == ["1", "8*1 = 8"]
        page.get_by_label("Second layout").select_option(label="nhwc, 2 x 16 x 5 x 4")
        page.wait_for_function("() => document.querySelectorAll('.formula .filled')[1].textContent === '16*1 = 16'")
        assert page.locator("#reorder-card").is_hidden()
        assert page.get_by_role("button", name="+ reshape").count() == 0
        url = page.url
    with open_page(chromium, url, size) as page:
        page.wait_for_selector(".formula .facts li")
        assert page.locator(".formula .filled").nth(1).inner_text() == "16*1 = 16"


def test_page_in_a_file_with_one_layout(chromium: "Browser", tmp_path: Path) -> None:
    """A page of one layout has no fields, and no menu of layouts."""
    path = tmp_path / "one.html"
    save_page(path, [make_request("Swizzle<3,3,3> o ab", "16x64", "f16", None)])
    with open_page(chromium, path.as_uri()) as page:
        page.wait_for_selector(".formula .facts li")
        assert page.locator(".filled").inner_text() == "s = 64*15 + 63 = 1023; s ^ (s & 448) >> 3 = 967"
        assert page.locator("#inputs").is_hidden()


def _download(page: "Page", name: str, folder: Path) -> Path:
    """Choose an item of the menu, and return the file that it saves."""
    page.locator("#share summary").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    path: Path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


@pytest.mark.parametrize("fragment", ["#l=nChw8c&d=2x17x5x4", "#l=nchw&d=2x16x5x4&l2=nChw8c"], ids=["one", "two"])
def test_pictures(chromium: "Browser", explorer: ExplorerProcess, tmp_path: Path, fragment: str) -> None:
    """The view is saved as SVG, with each element's number as text, and as PNG; the whole picture as SVG."""
    with open_page(chromium, explorer.url + fragment, accept_downloads=True) as page:
        page.wait_for_selector(".formula .facts li")
        page.wait_for_timeout(300)
        svg = _download(page, "Save this view as SVG", tmp_path)
        root = ElementTree.fromstring(svg.read_text())
        texts = [text.text for text in root.iter(f"{_SVG}text")]
        assert root.find(f"{_SVG}title") is not None
        assert any(text.startswith("offset = ") for text in texts if text)
        if "l2" not in fragment:
            assert {str(i) for i in range(680)} <= set(texts)
            assert svg.name == "nChw8c-2x17x5x4.svg"
        png = _download(page, "Save this view as PNG", tmp_path).read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        assert (width, height) == tuple(2 * round(float(root.attrib[side]) + 0.49) for side in ("width", "height"))
        whole = _download(page, "Save whole picture as SVG", tmp_path)
        assert "inlay-picture" in whole.read_text()


def test_ten_million_elements(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """Scrolling to the last of ten million elements and back draws what is there."""
    with open_page(chromium, f"{explorer.url}#l=nChw16c&d=1x64x400x400") as page:
        page.wait_for_selector(".formula .facts li")
        page.locator("#source").focus()
        page.keyboard.press("Control+End")
        assert page.locator("#offset").input_value() == "10239999"
        page.locator("#source").hover()
        page.mouse.wheel(0, -200)
        page.wait_for_timeout(200)
        box = page.locator("#source").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function("() => document.querySelector('#offset').value !== '10239999'")
        assert 10_239_000 < int(page.locator("#offset").input_value()) < 10_239_999
        page.locator("#source").focus()
        page.keyboard.press("Control+Home")
        assert page.locator("#coordinate").input_value() == "0,0,0,0"
        assert page.evaluate("() => document.querySelector('#source').scrollTop") == 0
