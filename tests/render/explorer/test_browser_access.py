"""The explorer for readers with a keyboard, a screen reader, or other eyes: axe, focus, announcements and colors."""

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import open_page, require_accessible
from tests.support.explorer_process import ExplorerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_ERROR = "#l=nChw8x&d=2x17x5x4"
_ALL = "#l=nchw&d=2x16x5x4&l2=nChw8c&v=permute:n,c,h,w&mark=cache+line,jumps&at=0,1,0,2"
_PADDED = "#l=nChw8c&d=2x17x5x4&at=1,17,4,3"


@pytest.mark.heavy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", [_ERROR, _ALL, _PADDED], ids=["error", "all", "padded"])
def test_axe_finds_nothing_serious(
    chromium: "Browser", explorer: ExplorerProcess, size: str, scheme: str, fragment: str
) -> None:
    """Axe has no serious finding, in both themes, with a mistake, with two layouts, and with padding."""
    with open_page(chromium, explorer.url + fragment, size, color_scheme=scheme, bypass_csp=True) as page:
        page.wait_for_selector(".problem .message" if fragment == _ERROR else ".formula .facts li")
        require_accessible(page)


@pytest.mark.heavy
def test_dialog_of_keys(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """The dialog opens by the keyboard, has no serious finding, and Escape returns the focus to its button."""
    with open_page(chromium, explorer.url, bypass_csp=True) as page:
        page.wait_for_selector(".formula .facts li")
        page.get_by_role("button", name="Keys").press("Enter")
        page.get_by_role("dialog").wait_for()
        require_accessible(page)
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0
        assert page.evaluate("() => document.activeElement.id") == "show-keys"


_FOCUS = """() => {
  const at = document.activeElement;
  if (at === document.body) return null;
  const style = getComputedStyle(at);
  const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  return [at.id || at.textContent || at.tagName, isSeen || at.matches("select, summary")];
}"""
"""The focused element, and if its focus is visible."""


@pytest.mark.heavy
def test_tab_visits_all_and_leaves(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """Tab goes through fields, views and cards with a visible focus, and is caught nowhere."""
    with open_page(chromium, explorer.url + _ALL, size) as page:
        page.wait_for_selector("#reorder-card summary", timeout=60_000)
        visited: list[str] = []
        for _ in range(120):
            page.keyboard.press("Tab")
            focus = page.evaluate(_FOCUS)
            if focus is None or (visited and focus[0] == visited[0]):
                break
            assert focus[1], focus
            visited.append(focus[0])
        else:
            pytest.fail(f"Tab does not leave the page: {visited[-5:]}")
        order = [name for name in visited if name in ("examples", "coordinate", "tensor", "source", "destination")]
        assert order == ["examples", "coordinate", "tensor", "source", "destination"]
        assert any(name.startswith("[a:0]") for name in visited)


@pytest.mark.heavy
def test_selection_is_announced(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """A screen reader hears coordinate, computation, byte and padding of the selected element."""
    with open_page(chromium, explorer.url + _PADDED) as page:
        expected = (
            "n 1, c 17, h 4, w 3: offset 480*1 + 160*(17//8) + 32*4 + 8*3 + 17%8 = 953, byte 3812, padding: no "
            "element, kept zero, block DP, cache line 59, page 0."
        )
        page.wait_for_function("text => document.querySelector('#announcement').textContent === text", arg=expected)
        roles = page.locator("[role=application]").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        assert all("Arrow keys move" in label for label in roles)
        assert page.locator("#announcement").get_attribute("aria-live") == "polite"
