"""The explorer in Chromium, at three sizes of window: every feature, without a message in the console.

Each test ends with the check of `open_page`: no error or warning in the console, and no request to another host.
"""

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import open_page
from tests.support.explorer_process import ExplorerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.heavy

FORMULA = "480*1 + 160*(16//8) + 32*4 + 8*3 = 952"


def _filled(page: "Page") -> str:
    return str(page.locator(".formula .filled").first.inner_text())


def _wait_for_formula(page: "Page", text: str) -> None:
    page.wait_for_function("text => document.querySelector('.formula .filled')?.textContent === text", arg=text)


def _point_at(page: "Page", pane: str, column: float, row: float) -> None:
    """Move the pointer to a place of a pane, in pixels from its top left corner."""
    box = page.locator(f"#{pane}").bounding_box()
    assert box is not None
    page.locator(f"#{pane}").scroll_into_view_if_needed()
    box = page.locator(f"#{pane}").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + column, box["y"] + row)


def test_first_view(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """The page opens with a padded layout, its last element selected, the formula with its numbers, and its facts."""
    with open_page(chromium, explorer.url, size) as page:
        _wait_for_formula(page, FORMULA)
        assert page.locator(".symbols").inner_text() == "offset = 480*n + 160*(c//8) + 32*h + 8*w + c%8"
        assert page.title() == "nChw8c – Inlay explorer"
        assert page.locator("#facts-card").get_by_text("n (c c8) h w -> n c h w c8").count() == 1
        assert page.locator("#padding-card").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_pointer_links_element_and_offset(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """The pointer over a cell of memory shows its element; a click keeps it when the pointer leaves."""
    with open_page(chromium, f"{explorer.url}#l=8,1&d=4x6&t=bf16", size) as page:
        _wait_for_formula(page, "8*3 + 5 = 29")
        page.locator("#source").focus()
        for key in ("Control+Home", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        _wait_for_formula(page, "2")
        assert page.locator("#coordinate").input_value() == "0,2"
        _point_at(page, "tensor", 40, 40)
        page.wait_for_function("() => document.querySelector('#coordinate').value !== '0,2'")
        hovered = _filled(page)
        page.mouse.down()
        page.mouse.up()
        page.mouse.move(5, 5)
        page.wait_for_timeout(100)
        assert _filled(page) == hovered


def test_views_stay_where_they_are(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """The pointer scrolls nothing; a key scrolls the other view to the element that it selects."""
    with open_page(chromium, explorer.url, size) as page:
        _wait_for_formula(page, FORMULA)
        tops = "() => ['tensor', 'source'].map((id) => document.getElementById(id).scrollTop)"
        assert page.evaluate(tops) == [0, 0]
        _point_at(page, "tensor", 60, 70)
        page.wait_for_function("() => document.querySelector('#coordinate').value !== '1,16,4,3'")
        page.mouse.move(3, 3)
        _wait_for_formula(page, FORMULA)
        assert page.evaluate(tops) == [0, 0]
        page.locator("#source").focus()
        page.keyboard.press("Control+End")
        page.wait_for_function("() => ['tensor', 'source'].every((id) => document.getElementById(id).scrollTop > 0)")


def test_gap_belongs_to_no_element(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """An offset in a gap is selected by keys and by its number, and is announced as a gap."""
    with open_page(chromium, f"{explorer.url}#l=8,1&d=4x6&t=bf16", size) as page:
        _wait_for_formula(page, "8*3 + 5 = 29")
        page.locator("#offset").fill("6")
        _wait_for_formula(page, "offset 6 belongs to no element")
        page.locator("#source").focus()
        page.keyboard.press("ArrowRight")
        _wait_for_formula(page, "offset 7 belongs to no element")
        page.keyboard.press("ArrowRight")
        _wait_for_formula(page, "8*1 = 8")
        page.locator("#announcement").get_by_text("a 1, b 0: offset 8*1 = 8").wait_for(state="attached")


def test_keys_move_along_axes(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """In the tensor arrow keys move along the last axes, PageUp along the one before, Home and End to the ends."""
    moves = [
        ("Control+Home", "0,0,0,0"),
        ("ArrowRight", "0,0,0,1"),
        ("ArrowDown", "0,0,1,1"),
        ("PageDown", "0,1,1,1"),
        ("Shift+PageDown", "1,1,1,1"),
        ("End", "1,1,1,3"),
        ("ArrowUp", "1,1,0,3"),
        ("Control+End", "1,23,4,3"),
    ]
    with open_page(chromium, explorer.url, size) as page:
        _wait_for_formula(page, FORMULA)
        page.locator("#tensor").focus()
        for key, coordinate in moves:
            page.keyboard.press(key)
            assert page.locator("#coordinate").input_value() == coordinate, key
        assert page.locator(".facts .padding").inner_text() == "padding: no element, kept zero"
        page.keyboard.press("Escape")
        assert page.locator("#coordinate").input_value() == ""


def test_typed_coordinate(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """A typed coordinate is selected; one outside is refused with the range."""
    with open_page(chromium, explorer.url) as page:
        _wait_for_formula(page, FORMULA)
        page.locator("#coordinate").fill("0, 8, 0, 1")
        _wait_for_formula(page, "160*(8//8) + 8*1 = 168")
        page.locator("#coordinate").fill("0,24,0,0")
        assert page.locator("#readout-hint").inner_text() == "c=24 is outside 0 to 23"
        page.locator("#coordinate").fill("0,1")
        assert page.locator("#readout-hint").inner_text() == "a coordinate has 4 numbers, one for each axis"
        page.locator("#offset").fill("960")
        assert page.locator("#readout-hint").inner_text() == "offset 960 is outside 0 to 959"
        page.locator("#offset").fill("x")
        assert page.locator("#readout-hint").inner_text() == "x is no whole number"


def test_mistake_is_marked_under_its_column(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """A mistake has a mark under the exact column while one types, and a text to click that is right."""
    with open_page(chromium, explorer.url, size) as page:
        _wait_for_formula(page, FORMULA)
        field = page.get_by_label("Layout", exact=True)
        field.fill("nChw8x")
        wrong = page.locator(".field.layout .mark .wrong")
        wrong.wait_for()
        assert wrong.inner_text() == "x"
        assert field.get_attribute("aria-invalid") == "true"
        assert "Column 6: inner block axis 'x'" in page.locator(".field.layout .problem").inner_text()
        mark, box = wrong.bounding_box(), field.bounding_box()
        assert mark is not None
        assert box is not None
        expected = box["x"] + float(field.evaluate(_WIDTH_BEFORE, "nChw8"))
        assert abs(mark["x"] - expected) < 1
        assert _filled(page) == FORMULA
        page.get_by_role("button", name="nChw8c", exact=True).click()
        page.wait_for_function("() => document.querySelector('.field.layout .problem').textContent === ''")
        assert field.input_value() == "nChw8c"
        assert field.get_attribute("aria-invalid") is None


def test_mistakes_are_within_the_window(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """What is wrong in a field can be read while one types: it leaves the window on neither side."""
    mistakes = {"Layout": "nChw8x", "Dims": "2x", "Data type": "f33", "Names of axes": "a", "Its data type": "f33"}
    with open_page(chromium, f"{explorer.url}#l=nChw8c&d=2x17x5x4&l2=nhwc", size) as page:
        _wait_for_formula(page, FORMULA)
        width = page.evaluate("document.documentElement.clientWidth")
        for label, text in mistakes.items():
            field = page.get_by_label(label, exact=True)
            right = field.input_value()
            field.fill(text)
            problem = page.locator(".problem:has(.message)")
            problem.wait_for()
            box = problem.bounding_box()
            assert box is not None
            assert box["x"] >= 0, label
            assert box["x"] + box["width"] <= width, label
            field.fill(right)
            problem.wait_for(state="detached")


_WIDTH_BEFORE = """(input, text) => {
  const context = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(input);
  context.font = style.font;
  return context.measureText(text).width + parseFloat(style.paddingLeft) + 1;
}"""
"""Pixels from the edge of a field to the end of a text in it."""


def test_views_are_applied_and_refused_with_repairs(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """A view is applied as one types; one that does not exist is refused with repairs, which a click applies."""
    with open_page(chromium, f"{explorer.url}#l=nChw8c&d=2x18x5x4", size) as page:
        page.wait_for_selector(".formula .filled")
        page.get_by_role("button", name="+ permute").click()
        page.get_by_label("Permute to").fill("n,h,w,c")
        page.wait_for_function("() => document.querySelector('.view .result').textContent.startsWith('rename_axes')")
        page.get_by_role("button", name="Remove view 1, permute").click()
        page.get_by_role("button", name="+ reshape").click()
        page.get_by_label("Reshape to").fill("2x2x9x5x4")
        problem = page.locator(".view .problem")
        problem.get_by_text("axis 1 (c) cannot be split into 2 x 9").wait_for()
        problem.get_by_role("button", name="reshape to 2x1x18x5x4").click()
        page.wait_for_function("() => document.querySelector('.view .result').textContent.startsWith('reshape(')")
        assert page.get_by_label("Reshape to").input_value() == "2x1x18x5x4"
        page.get_by_role("button", name="+ submemory").click()
        page.get_by_label("Submemory of").fill("1x1x8x5x4")
        page.get_by_label("from").fill("1,0,8,0,0")
        views = "v=reshape:2x1x18x5x4&v=submemory:1x1x8x5x4@1,0,8,0,0"
        page.wait_for_function("views => location.hash.includes(views)", arg=views)
        page.wait_for_function(
            "start => document.querySelectorAll('.view .result')[1].textContent.startsWith(start)",
            arg="submemory((1, 1, 8, 5, 4), (1, 0, 8, 0, 0))",
        )


def test_second_layout_and_reorder(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """A second layout is beside the first, with the formula of both, lines between, and the kernel in words."""
    with open_page(chromium, f"{explorer.url}#l=nchw&d=2x16x5x4", size) as page:
        _wait_for_formula(page, "320*1 + 20*15 + 4*4 + 3 = 639")
        page.get_by_role("button", name="Compare with a second layout").click()
        page.get_by_label("Second layout").fill("nChw8c")
        page.wait_for_function("() => document.querySelectorAll('.formula').length === 2")
        page.wait_for_function("() => document.title.startsWith('nchw to nChw8c')")
        page.locator("#reorder-card").get_by_text("tile of").first.wait_for(timeout=60_000)
        page.locator("#coordinate").fill("0,9,1,2")
        _wait_for_formula(page, "20*9 + 4*1 + 2 = 186")
        assert page.locator(".formula .filled").nth(1).inner_text() == "160*(9//8) + 32*1 + 8*2 + 9%8 = 209"
        page.locator("#lines").scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        assert page.evaluate(_PAINTED, "#lines canvas") > 200
        page.get_by_label("Second layout").fill("nChw8q")
        page.locator(".field.layout2 .problem").get_by_text("Column 6").wait_for()
        page.locator("#labels").focus()
        page.get_by_role("button", name="Remove the second layout").click()
        page.wait_for_function("() => !location.hash.includes('l2=')")
        assert page.locator("#destination-pane").is_hidden()


_PAINTED = """selector => {
  const canvas = document.querySelector(selector);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 3; i < data.length; i += 4) if (data[i] > 0) count += 1;
  return count;
}"""
"""Counts the pixels of a canvas that are drawn."""


def test_marks(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """Cache lines, pages, SIMD and VNNI groups and jumps are drawn when chosen, and stay in the link."""
    fragment = "#l=OIhw4i16o4i&d=16x16x3x3&t=s8"
    with open_page(chromium, explorer.url + fragment, size) as page:
        page.wait_for_selector(".formula .filled")
        for name in ("cache lines", "pages", "VNNI groups", "SIMD groups"):
            page.wait_for_timeout(150)
            before = page.evaluate(_CELLS, "#source")
            page.get_by_label(name).check()
            page.wait_for_function(f"before => ({_CELLS})('#source') !== before", arg=before)
        assert "mark=cache+line,page,vnni,simd" in page.url
        page.get_by_role("checkbox", name="jumps").check()
        assert page.locator("#mark-list [aria-pressed=true]").count() == 5
        page.locator("#mark-list button").nth(1).click()
        assert page.locator("#mark-list [aria-pressed=true]").count() == 4
        assert page.locator("#coordinate").input_value() == "1,0,0,0"


_CELLS = "selector => document.querySelector(selector + ' canvas.cells').toDataURL()"
"""The picture of the cells of a pane."""


def test_jump_marks_of_the_article(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """The marks of nchw, nhwc and chwn are a, b and c, from the innermost axis to the outermost."""
    expected = {"nchw": ("a", "whcn"), "nhwc": ("b", "cwhn"), "chwn": ("c", "nwhc")}
    for tag, (letter, axes) in expected.items():
        with open_page(chromium, f"{explorer.url}#l={tag}&d=2x16x5x4&mark=jumps") as page:
            page.wait_for_selector(".formula .filled")
            texts = page.locator("#mark-list button").all_inner_texts()
            labels = [text.split(":", 2)[:2] for text in texts]
            assert [f"[{letter}:{i}] next {axis}" for i, axis in enumerate(axes)] == [":".join(x) for x in labels]


def test_padded_computation_of_the_article(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """17 channels in blocks of 8 have 24 products, 7 of them with zeros."""
    with open_page(chromium, explorer.url) as page:
        _wait_for_formula(page, FORMULA)
        assert page.locator(".lane").count() == 24
        assert page.locator(".lane.zero").count() == 7
        assert page.locator("#padding-card").get_by_text("C_padded = div_up(17, 8) * 8 = 24").count() == 1


def test_link_restores_the_page(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """The address holds layout, views, selection and marks, and another window shows the same."""
    with open_page(chromium, explorer.url, size) as page:
        _wait_for_formula(page, FORMULA)
        page.get_by_label("Layout", exact=True).fill("(m m4 m32) (k k4) -> m k m32 m4 k4")
        page.get_by_label("Dims", exact=True).fill("256x8")
        page.get_by_label("Data type", exact=True).fill("f8_e4m3")
        page.wait_for_function("() => document.querySelector('#coordinate').value === '255,7'")
        page.locator("#labels").select_option("offset")
        page.locator("#coordinate").fill("33,5")
        page.wait_for_function("() => location.hash.includes('at=33,5')")
        url, formula = page.url, _filled(page)
    with open_page(chromium, url, size) as page:
        _wait_for_formula(page, formula)
        assert page.get_by_label("Layout", exact=True).input_value() == "(m m4 m32) (k k4) -> m k m32 m4 k4"
        assert page.locator("#labels").input_value() == "offset"
        assert page.url == url


def test_examples(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """Each example of the menu is a layout without a mistake."""
    with open_page(chromium, explorer.url) as page:
        _wait_for_formula(page, FORMULA)
        values = page.locator("#examples option").evaluate_all("all => all.map(one => one.value).slice(1)")
        assert len(values) >= 12
        for value in values:
            page.evaluate("() => { document.title = 'waiting'; }")
            page.get_by_label("Examples").select_option(value)
            page.wait_for_function("() => document.title !== 'waiting'")
            assert page.locator(".problem .message").count() == 0, value


def test_themes(chromium: "Browser", explorer: ExplorerProcess, size: str) -> None:
    """The page follows the theme of the system until one is chosen, which the browser keeps."""
    background = "getComputedStyle(document.body).backgroundColor"
    with open_page(chromium, explorer.url, size, color_scheme="dark") as page:
        _wait_for_formula(page, FORMULA)
        dark, cells = page.evaluate(background), page.evaluate(_CELLS, "#tensor")
        page.get_by_label("Theme").select_option("light")
        page.wait_for_timeout(150)
        assert page.evaluate(background) != dark
        assert page.evaluate(_CELLS, "#tensor") != cells
        page.reload()
        _wait_for_formula(page, FORMULA)
        assert page.get_by_label("Theme").input_value() == "light"
        assert page.evaluate(background) != dark


def test_server_that_has_ended(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """Without an answer the page says what to do, and keeps its drawings."""
    with open_page(chromium, explorer.url, expected="net::ERR_FAILED") as page:
        _wait_for_formula(page, FORMULA)
        page.route("**/api/*", lambda route: route.abort())
        page.get_by_label("Dims", exact=True).fill("2x16x5x4")
        page.locator("#banner").get_by_text("Start it again").wait_for()
        assert _filled(page) == FORMULA
        page.unroute("**/api/*")
        page.get_by_label("Dims", exact=True).fill("2x16x5x3")
        page.wait_for_function("() => document.querySelector('#banner').hidden")


def test_offsets_beyond_exact_numbers_are_drawn(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """A layout whose offsets are computed as bigints is drawn, since its memory has less than 2**53 elements."""
    with open_page(chromium, f"{explorer.url}#l=4000000000000000,1&d=2x3&show=offset") as page:
        _wait_for_formula(page, "4000000000000000*1 + 2 = 4000000000000002")
        page.wait_for_timeout(150)
        assert page.evaluate(_PAINTED, "#tensor canvas.cells") > 1000


def test_command_of_the_page(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """The command that is copied has the types, names, second layout and views; a stride below 0 is no option."""
    views = "v=permute:n,h,w,c&v=reshape:2x20x16"
    links = {
        f"l=nchw&d=2x16x5x4&t=bf16&l2=ab+c&{views}": "inlay explore --dtype bf16 --to 'ab c' --view permute:n,h,w,c "
        "--view reshape:2x20x16 nchw 2x16x5x4",
        "l=-4,1&d=3x4": "inlay explore -- -4,1 3x4",
    }
    for fragment, command in links.items():
        with open_page(chromium, f"{explorer.url}#{fragment}") as page:
            page.wait_for_selector(".formula .facts li")
            page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
            page.locator("#share summary").click()
            page.get_by_role("button", name="Copy command").click()
            assert page.evaluate("window.copied") == command


@pytest.mark.parametrize(
    ("fragment", "note"),
    [
        ("l=nchw&d=0x3x2x2", "no elements to draw: n has no coordinates"),
        ("l=200000000,1&d=200000000x200000000&t=u8", "too large to draw: more than 2**53 elements of memory"),
    ],
)
def test_layouts_that_cannot_be_drawn(chromium: "Browser", explorer: ExplorerProcess, fragment: str, note: str) -> None:
    """A layout without elements, or with too many, says so, and its formula stays."""
    with open_page(chromium, f"{explorer.url}#{fragment}") as page:
        page.locator("#tensor-pane .summary").get_by_text(note).wait_for()
        assert page.locator(".symbols").inner_text().startswith("offset = ")


def test_a_tensor_without_elements_has_no_jumps(chromium: "Browser", explorer: ExplorerProcess) -> None:
    """Without elements there are no jump marks to choose and nothing to point at."""
    with open_page(chromium, f"{explorer.url}#l=ab&d=3x0") as page:
        _wait_for_formula(page, "There are no elements.")
        assert page.locator("#marks-card").is_hidden()
