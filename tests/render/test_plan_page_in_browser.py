"""The page of a plan in a browser: what a user does with mouse, keys and fingers, at three sizes of the window."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inlay.graph.plan import Plan
from inlay.render.plan_page import PlanPage
from tests.support.browser import open_page, require_accessible
from tests.support.plan_pages import PageParts, known_plan
from tests.support.profiles import profile_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.heavy


def profiled_page(plan: Plan) -> PlanPage:
    """The page of a plan whose last step takes far longer than predicted."""
    times = [step.ms for step in plan.program.steps]
    return PlanPage(plan, profile_of(plan.program, plan.graph, [*times[:-1], 10 * plan.ms]))


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {name: PlanPage(known_plan(name)) for name in ("encoder", "squeezenet", "densenet121")}
    pages["measured"] = profiled_page(known_plan("squeezenet"))
    for name, page in pages.items():
        page.save(folder / f"{name}.html")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


def visible(page: Any, selector: str = "#graph .node") -> int:
    """The number of elements that are drawn."""
    count: int = page.evaluate(
        "selector => [...document.querySelectorAll(selector)].filter(one => one.getClientRects().length).length",
        selector,
    )
    return count


def transform(page: Any) -> str:
    found: str = page.get_attribute("#camera", "transform")
    return found


def box(page: Any, selector: str) -> dict[str, float]:
    found: dict[str, float] = page.locator(selector).bounding_box()
    return found


def in_view(page: Any, selector: str) -> bool:
    """Whether an element is within the window of the graph."""
    inner, outer = box(page, selector), box(page, "#graph")
    return all(
        outer[at] - 1 <= inner[at] and inner[at] + inner[size] <= outer[at] + outer[size] + 1
        for at, size in (("x", "width"), ("y", "height"))
    )


@pytest.mark.parametrize(
    ("name", "scheme", "size"),
    [("encoder", "dark", "desktop"), ("densenet121", "light", "tablet"), ("measured", "light", "phone")],
)
def test_the_page_is_accessible(chromium: "Browser", urls: dict[str, str], name: str, scheme: str, size: str) -> None:
    with open_page(chromium, urls[name], size, color_scheme=scheme) as page:
        require_accessible(page)
        for tab in ("reorders", "plans"):
            page.click(f"#tab-{tab}")
            require_accessible(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_unfolded_graph_and_details_are_accessible(chromium: "Browser", urls: dict[str, str], scheme: str) -> None:
    with open_page(chromium, urls["measured"], color_scheme=scheme) as page:
        page.click("#steps-table tbody button >> nth=0")
        page.click("#unfold-all")
        require_accessible(page)


def test_the_page_fits_its_window(chromium: "Browser", urls: dict[str, str], size: str) -> None:
    with open_page(chromium, urls["densenet121"], size) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert box(page, "#graph")["height"] > 250
        text = page.evaluate("document.querySelector('#graph .node text').getBoundingClientRect().height")
        assert text > 7


def test_blocks_fold_and_unfold_where_they_are(chromium: "Browser", urls: dict[str, str], size: str) -> None:
    with open_page(chromium, urls["encoder"], size) as page:
        folded = visible(page)
        head = box(page, "#folded-1 .head")
        page.mouse.click(head["x"] + head["width"] / 2, head["y"] + head["height"] / 2)
        assert visible(page) > 10 * folded
        assert box(page, "#unfolded-1 .head")["y"] == pytest.approx(head["y"], abs=1)
        assert page.get_attribute("#unfolded-1", "aria-expanded") == "true"
        assert page.text_content("#announcement") == "block unfolded"
        page.keyboard.press("Enter")
        assert visible(page) == folded
        page.click("#unfold-all")
        page.click("#fold-all")
        assert visible(page) == folded


def test_a_step_that_is_clicked_shows_its_descriptors(chromium: "Browser", urls: dict[str, str]) -> None:
    plan = known_plan("squeezenet")
    with open_page(chromium, urls["squeezenet"]) as page:
        page.click("#graph .node.step >> nth=0")
        text = page.inner_text("#details")
        step = plan.program.steps[0]
        buffer = plan.program.buffers[step.writes["dst"]]
        assert f"{buffer.desc} {'x'.join(map(str, plan.graph.tensors[buffer.tensor].dims))}" in text
        assert f"{step.ms:.3f} ms, {100 * step.ms / plan.ms:.1f} %" in text
        assert page.locator("#graph .node.selected").count() == 1
        assert page.locator("#graph .wire.lit").count() == 2
        assert page.get_attribute("#tab-details", "aria-selected") == "true"
        page.keyboard.press("Escape")
        assert page.locator("#graph .selected, #graph .lit").count() == 0


def test_a_step_and_a_wire_that_are_hovered_show_a_card(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["squeezenet"]) as page:
        assert page.is_hidden("#card")
        first, second = (box(page, f"#graph .node.step >> nth={i}") for i in (0, 1))
        page.mouse.move(first["x"] + 20, first["y"] + 20)
        assert "convolution 3x3 + relu" in page.inner_text("#card h2")
        page.mouse.move(first["x"] + first["width"] / 2 + 2, (first["y"] + first["height"] + second["y"]) / 2)
        assert page.inner_text("#card h2") == "nChw16c"
        assert "f32::blocked:aBcd16b::f0" in page.inner_text("#card")
        page.mouse.move(5, 5)
        assert page.is_hidden("#card")


def test_a_reorder_shows_bytes_time_and_reason(chromium: "Browser", urls: dict[str, str]) -> None:
    plan = known_plan("squeezenet")
    (step,) = plan.reorders
    with open_page(chromium, urls["squeezenet"]) as page:
        page.click("#tab-reorders")
        page.click("#reorders-table tbody button")
        assert in_view(page, ".node.reorder.selected")
        text = page.inner_text("#details")
        assert "reorder nChw16c → nhwc" in text
        assert f"{step.ms:.3f} ms" in text
        assert f"{step.nbytes / 1e3:.1f} kB" in text
        assert "reads nhwc" in text
        assert f"the best plan without it takes {step.without:.3f} ms more" in text


def test_the_graph_is_moved_and_zoomed(chromium: "Browser", urls: dict[str, str], size: str) -> None:
    with open_page(chromium, urls["densenet121"], size) as page:
        room = box(page, "#graph")
        x, y = room["x"] + 20, room["y"] + room["height"] / 2
        first = box(page, "#f1")
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 30, y - 50, steps=4)
        page.mouse.up()
        moved = box(page, "#f1")
        assert (moved["x"] - first["x"], moved["y"] - first["y"]) == pytest.approx((30, -50), abs=1)
        assert page.locator(".selected").count() == 0
        page.mouse.wheel(0, 40)
        page.wait_for_function(
            "before => document.querySelector('#f1').getBoundingClientRect().y < before", arg=moved["y"]
        )
        page.click("#zoom-in")
        assert box(page, "#f1")["width"] == pytest.approx(1.25 * first["width"], rel=0.01)
        page.click("#fit")
        whole = box(page, "#camera")
        assert whole["height"] <= room["height"] + 1
        assert whole["width"] <= room["width"] + 1


def test_the_wheel_zooms_around_the_pointer_with_ctrl(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["squeezenet"]) as page:
        before = box(page, "#f2")
        x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        page.wait_for_function(
            "width => document.querySelector('#f2').getBoundingClientRect().width > width", arg=before["width"] + 1
        )
        after = box(page, "#f2")
        assert (after["x"] + after["width"] / 2, after["y"] + after["height"] / 2) == pytest.approx((x, y), abs=1)


def test_keys_lead_through_the_graph(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["encoder"]) as page:
        page.focus("#graph [tabindex='0']")
        names = []
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "End", "Home"):
            page.keyboard.press(key)
            names.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
            assert in_view(page, ":focus")
        assert names[0].startswith("12 × 11 steps")
        assert names[5].startswith("output ")
        assert names[6].startswith("input ")
        assert page.locator("#graph [tabindex='0']").count() == 1
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        before = visible(page)
        page.keyboard.press("f")
        assert visible(page) > before
        page.keyboard.press("f")
        assert visible(page) == before
        page.keyboard.press("Enter")
        assert page.locator("#graph .selected").count() == 1
        assert page.evaluate("document.activeElement.classList.contains('selected')")


def test_a_search_marks_what_it_finds_and_leads_from_match_to_match(chromium: "Browser", urls: dict[str, str]) -> None:
    plan = known_plan("squeezenet")
    count = sum("n5" in " ".join(step.ops) for step in plan.program.steps)
    with open_page(chromium, urls["squeezenet"]) as page:
        page.click("#unfold-all")
        page.keyboard.press("/")
        page.keyboard.type("convolution nhwc")
        assert page.text_content("#found").startswith("1 of 32 steps")
        assert visible(page, "#graph .match") == 1
        page.keyboard.press("Enter")
        assert in_view(page, ".selected")
        assert "n62" in page.inner_text("#details")
        page.fill("#search", "pooling")
        assert page.text_content("#found") == "4 of 32 steps"
        seen = set()
        for _ in range(4):
            page.keyboard.press("Enter")
            seen.add(page.evaluate("location.hash"))
            assert in_view(page, ".selected")
        assert len(seen) == 4
        page.keyboard.press("Escape")
        assert page.input_value("#search") == ""
        assert page.locator("#graph .match").count() == 0
        assert count


def test_the_address_names_the_selected_step(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["densenet121"]) as page:
        page.click("#steps-table tbody button >> nth=5")
        address, text = page.url, page.inner_text("#details")
    with open_page(chromium, urls["densenet121"]) as page:
        page.goto(address)
        assert page.inner_text("#details") == text
        assert in_view(page, ".selected >> nth=0")


def test_tables_are_sorted_by_their_heads(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["squeezenet"]) as page:
        page.click("#tab-steps")

        def column(number: int) -> list[str]:
            return [
                text.strip() for text in page.locator(f"#steps-table tbody td:nth-child({number})").all_inner_texts()
            ]

        times = [float(text) for text in column(2)]
        assert times == sorted(times, reverse=True)
        page.click("#steps-table th:nth-child(2) button")
        page.click("#steps-table th:nth-child(2) button")
        assert [float(text) for text in column(2)] == sorted(times)
        assert page.get_attribute("#steps-table th:nth-child(2)", "aria-sort") == "ascending"
        page.click("#steps-table th:nth-child(4) button")
        assert column(4) != sorted(column(4), reverse=True)
        assert page.get_attribute("#steps-table th:nth-child(4)", "aria-sort") == "ascending"


def test_plans_are_beside_each_other(chromium: "Browser", urls: dict[str, str]) -> None:
    plan = known_plan("squeezenet")
    with open_page(chromium, urls["squeezenet"]) as page:
        page.click("#tab-plans")
        rows = page.locator("#plans-table tbody tr").all_inner_texts()
        for row, (name, ms) in zip(rows, {"this plan": plan.ms, **plan.totals}.items(), strict=True):
            assert row.startswith(name)
            assert f"{ms:.3f}" in row
        page.focus("#tab-plans")
        page.keyboard.press("ArrowLeft")
        assert page.get_attribute("#tab-reorders", "aria-selected") == "true"


def test_predicted_and_measured_times_are_shown_in_turn(chromium: "Browser", urls: dict[str, str]) -> None:
    data = PageParts(profiled_page(known_plan("squeezenet")).html()).data["plan"]["steps"]
    texts = "#graph .node.step >> nth=-1 >> text.{}.right"
    with open_page(chromium, urls["measured"]) as page:
        assert page.text_content(texts.format("measured")) == f"{100 * data[-1]['measured']['share']:.1f} %"
        assert page.text_content(texts.format("predicted")) == f"{100 * data[-1]['share']:.1f} %"
        width = page.locator("#time-line .measured rect >> nth=-1").bounding_box()["width"]
        assert width > 0.8 * box(page, "#time-line")["width"]
        page.check("#times [value=predicted]")
        assert visible(page, "#graph .measured") == 0
        assert visible(page, "#graph .predicted") > 30
        page.check("#times [value=measured]")
        assert visible(page, "#graph .predicted") == 0
        page.click("#steps-table tbody button >> nth=0")
        assert f"{data[-1]['measured']['ms']:.3f} ms" in page.inner_text("#details")


def test_two_fingers_zoom(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["squeezenet"], "phone", has_touch=True) as page:
        room = box(page, "#graph")
        x, y = room["x"] + room["width"] / 2, room["y"] + room["height"] / 2
        before = box(page, "#f1")["width"]
        client = page.context.new_cdp_session(page)

        def touch(kind: str, distance: float) -> None:
            points = [{"x": x - distance, "y": y, "id": 0}, {"x": x + distance, "y": y, "id": 1}]
            client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if kind != "touchEnd" else []})

        touch("touchStart", 30)
        for distance in (40, 50, 60):
            touch("touchMove", distance)
        touch("touchEnd", 60)
        assert box(page, "#f1")["width"] == pytest.approx(2 * before, rel=0.15)


def test_the_page_works_without_its_script(chromium: "Browser", urls: dict[str, str]) -> None:
    with open_page(chromium, urls["squeezenet"], java_script_enabled=False) as page:
        assert page.is_visible("#graph")
        assert page.is_visible("#plans-table")
        assert box(page, "#camera")["height"] <= box(page, "#graph")["height"]


def test_pages_are_files_of_their_own(urls: dict[str, str]) -> None:
    paths = [Path(url.removeprefix("file://")) for url in urls.values()]
    assert all(path.stat().st_size < 2_000_000 for path in paths)
