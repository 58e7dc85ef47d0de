"""Times of the explorer's page in Chromium: first paint, first drawing, hover, and scrolling.

Each figure comes from the browser's own clock. *Paint* is the entry `first-contentful-paint` of a page in a new
context. *Drawing* ends when the layout that the server has sent is on the page. *Hover* is one pointer event on the
tensor view: its handler, and the callbacks and the layout of the frame that follows it. *Scrolling* is the frame after
a jump to another place of ten million elements.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.record import Figure
from inlay.measure.statistics import spread

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PAINT_SECONDS = 1.0  # limit of the first paint
FRAME_SECONDS = 0.016  # limit of a hover: one frame of a screen with 60 frames a second
VISIBLE = 10_000  # elements that are visible while the pointer moves
LOADS = 7  # pages that are loaded for each figure of a load
MOVES = 120  # pointer events for each figure of a hover

_WINDOW: "ViewportSize" = {"width": 1440, "height": 900}
_LARGE = "#l=nChw16c&d=1x64x400x400"
_HOVER = """async (moves) => {
  const pane = document.getElementById("tensor");
  const box = pane.getBoundingClientRect();
  const times = [];
  for (let i = 0; i < moves; i += 1) {
    const [x, y] = [40 + ((i * 37) % (box.width - 80)), 40 + ((i * 23) % (box.height - 80))];
    const event = new PointerEvent("pointermove", { clientX: box.left + x, clientY: box.top + y, bubbles: true });
    times.push(await new Promise((resolve) => {
      let frame = 0;
      requestAnimationFrame(() => { frame = performance.now(); });
      const start = performance.now();
      pane.dispatchEvent(event);
      const handled = performance.now() - start;
      requestAnimationFrame(() => {
        document.body.getBoundingClientRect();
        resolve((handled + performance.now() - frame) / 1000);
      });
    }));
  }
  return times;
}"""
_SCROLL = """async ([id, moves]) => {
  const pane = document.getElementById(id);
  const times = [];
  for (let i = 0; i < moves; i += 1) {
    pane.scrollTop = (((i + 1) * 7919) % 1000) / 1000 * (pane.scrollHeight - pane.clientHeight);
    await new Promise((resolve) => pane.addEventListener("scroll", resolve, { once: true }));
    times.push(await new Promise((resolve) => {
      const start = performance.now();
      requestAnimationFrame(() => {
        document.body.getBoundingClientRect();
        resolve((performance.now() - start) / 1000);
      });
    }));
  }
  return times;
}"""
_PANES = """() => ["tensor", "source"].map((id) => {
  const { clientWidth, clientHeight } = document.getElementById(id);
  return [clientWidth, clientHeight];
})"""


def measure_explorer() -> list[Figure]:
    """Return every figure; the limits are the aims.

    Raises:
        RuntimeError: Chromium or a package is missing.
    """
    with _run_chromium() as browser, _serve() as url:
        paints, drawings = zip(*(_load(browser, url) for _ in range(LOADS)), strict=True)
        figures = [
            Figure("first paint", spread(paints), PAINT_SECONDS),
            Figure("first drawing", spread(drawings), None),
        ]
        context = browser.new_context(viewport=_WINDOW)
        page = context.new_page()
        page.goto(url + _LARGE)
        page.wait_for_selector(".formula .facts li")
        figures.append(Figure("hover, usual cells", spread(page.evaluate(_HOVER, MOVES)), FRAME_SECONDS))
        count = _shrink_cells(page)
        times = page.evaluate(_HOVER, MOVES)
        figures.append(Figure(f"hover, {count:,} visible elements", spread(times), FRAME_SECONDS))
        for name, pane in (("tensor", "tensor"), ("memory", "source")):
            times = page.evaluate(_SCROLL, [pane, 30])
            figures.append(Figure(f"scroll {name} of ten million elements", spread(times), None))
        context.close()
    return figures


def _shrink_cells(page: "Page") -> int:
    """Choose smaller cells until `VISIBLE` elements are visible; return how many are."""
    count = 0
    for height in (20, 16, 13, 10, 8, 6):
        for pane in ("tensor-pane", "source-pane"):
            page.click(f"#{pane} [data-zoom=out]")
        page.wait_for_timeout(200)
        (grid_width, grid_height), (strip_width, strip_height) = page.evaluate(_PANES)
        count = int(grid_width / height) * int(grid_height / height)
        count += int(strip_width / height) * int(strip_height / (height + 4))  # rows of memory are 4 pixels apart
        if height < 13 and count >= VISIBLE:
            return count
    raise RuntimeError(f"{count} elements are visible with the smallest cells: open a larger window")


def _load(browser: "Browser", url: str) -> tuple[float, float]:
    """Return the seconds from the start of a page to its first paint, and to its first drawing."""
    context = browser.new_context(viewport=_WINDOW)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".formula .facts li")
    entry = "name => performance.getEntriesByName(name)[0]?.startTime"
    times = []
    for name in ("first-contentful-paint", "inlay-first-drawing"):
        page.wait_for_function(entry, arg=name)
        times.append(float(page.evaluate(entry, name)) / 1000)
    context.close()
    return times[0], times[1]


@contextmanager
def _run_chromium() -> "Iterator[Browser]":
    """Run Chromium until the end of the block."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        raise RuntimeError("Chromium is not installed: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise RuntimeError("Playwright is not installed: pip install playwright") from None
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _serve() -> Iterator[str]:
    """Run `inlay explore` until the end of the block; yield its address."""
    command = [sys.executable, "-m", "inlay", "explore", "--no-open"]
    root = Path(__file__).resolve().parent.parent
    server = subprocess.Popen(command, cwd=root, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip().partition("#")[0]
    finally:
        server.terminate()
        server.communicate()
