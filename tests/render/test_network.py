"""Pictures of plans: each thing is there once, nothing overlaps, wires lead from row to row, words tell it all."""

import random
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from inlay import InvalidArguments, MemoryDesc
from inlay.graph.op_graph import OpGraph
from inlay.graph.plan import Plan, plan_graph
from inlay.render.network import PlanPicture
from inlay.render.network.drawing import BRIGHT, GRAY, format_colors
from inlay.render.network.flow import Flow, flow_of, format_name
from inlay.render.network.placing import GAP, Layering, Placing, crossings, layered, placed
from inlay.render.saving import scrolling
from tests.support.paths import GOLDEN
from tests.support.planner_graphs import Drawing, HashedCosts, drawn_graph
from tests.support.refusals import raises_exactly

SVG = "{http://www.w3.org/2000/svg}"
GOLDEN = GOLDEN / "networks" / "plan.svg"
SEEDS = range(40)


def drawn_plan(seed: int) -> Plan:
    return plan_graph(drawn_graph(seed, 2 + seed % 11, 1 + seed % 2), HashedCosts(seed))


def branches() -> OpGraph:
    """Two convolutions of one image, put together, and a softmax over channels."""
    drawing = Drawing(random.Random(1))
    image = drawing.tensors["x"]
    parts = [drawing.tensors[drawing.conv(image, 16, size)] for size in (1, 3)]
    drawing.concat(parts)
    return drawing.graph()


def chain(length: int) -> Placing:
    """Return the positions of a chain of poolings."""
    drawing = Drawing(random.Random(1))
    image = drawing.tensors["x"]
    for _ in range(length):
        image = drawing.tensors[drawing.pool(image)]
    flow = flow_of(plan_graph(drawing.graph(), HashedCosts()))
    return placed(flow, layered(flow))


@pytest.fixture(scope="module", params=SEEDS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return drawn_plan(request.param)


@pytest.fixture(scope="module")
def flow(plan: Plan) -> Flow:
    return flow_of(plan)


@pytest.fixture(scope="module")
def layering(flow: Flow) -> Layering:
    return layered(flow)


def test_each_step_is_one_mark_and_each_buffer_that_it_reads_leads_to_it(plan: Plan, flow: Flow) -> None:
    steps = [number for number, mark in enumerate(flow.marks) if mark.ms is not None]
    assert len(steps) == len(plan.program.steps)
    for number, step in zip(steps, plan.program.steps, strict=True):
        assert flow.marks[number].ms == step.ms
        assert sum(number in wire.targets for wire in flow.wires) == len(set(step.reads.values()))


def test_wires_lead_to_later_marks_and_nothing_but_outputs_leads_nowhere(plan: Plan, flow: Flow) -> None:
    assert all(wire.source < target for wire in flow.wires for target in wire.targets)
    ends = set(range(len(flow.marks))) - {wire.source for wire in flow.wires}
    shapes = [flow.marks[number].shape for number in ends]
    assert shapes == ["output"] * len(plan.program.outputs)


def test_links_lead_from_one_row_to_the_next_and_join_each_wire(flow: Flow, layering: Layering) -> None:
    row = {item: number for number, items in enumerate(layering.rows) for item in items}
    assert all(row[link.lower] == row[link.upper] + 1 for link in layering.links)
    for number, wire in enumerate(flow.wires):
        reached = {wire.source}
        for link in sorted((link for link in layering.links if link.wire == number), key=lambda link: row[link.upper]):
            assert link.upper in reached
            reached.add(link.lower)
        assert set(wire.targets) <= reached


def test_items_of_a_row_keep_their_order_and_their_distance(flow: Flow, layering: Layering) -> None:
    placing = placed(flow, layering)
    for items in layering.rows:
        for one, other in pairwise(placing.boxes[item] for item in items):
            assert other.x - other.width / 2 >= one.x + one.width / 2 + GAP - 1e-6


def test_no_mark_covers_another(flow: Flow, layering: Layering) -> None:
    placing = placed(flow, layering)
    boxes = placing.boxes[: len(flow.marks)]
    for one, other in combinations(boxes, 2):
        is_beside = abs(one.x - other.x) >= (one.width + other.width) / 2
        is_below = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert is_beside or is_below
    assert all(box.x - box.width / 2 >= -1e-6 and box.y >= placing.top for box in boxes)


def test_a_chain_stands_in_one_line() -> None:
    centers = [box.x for box in chain(4).boxes]
    assert max(centers) - min(centers) < 1e-6


def test_a_long_network_is_cut_into_columns_about_as_wide_as_high() -> None:
    columns = chain(60).columns
    assert len(columns) > 2
    assert 0.7 < columns[-1].right / max(column.bottom for column in columns) < 3


def test_crossings_are_counted() -> None:
    rng = random.Random(0)
    for _ in range(50):
        upper, lower = list(range(6)), list(range(6, 12))
        rng.shuffle(upper)
        rng.shuffle(lower)
        pairs = {(rng.choice(upper), rng.choice(lower)) for _ in range(9)}
        below: dict[int, list[int]] = {}
        for one, other in pairs:
            below.setdefault(one, []).append(other)
        each = [(upper.index(a), lower.index(b)) for a, b in pairs]
        slow = sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(each, 2))
        assert crossings([upper, lower], below) == slow


def test_a_concatenation_without_a_copy_is_a_mark_of_its_own() -> None:
    graph = branches()
    shapes = [[mark.shape for mark in flow_of(plan_graph(graph, HashedCosts(seed))).marks] for seed in range(8)]
    assert any("view" in found for found in shapes)


def test_usual_formats_have_one_color_in_all_pictures_and_no_two_of_seven_the_same() -> None:
    assert format_colors(["aBcd16b", "plain"]) == {"aBcd16b": BRIGHT[0], "plain": GRAY}
    found = format_colors(["plain", "acdb", "aBcd16b", "bacd", "cdba", "dabc", "abdc"])
    assert len(set(found.values())) == 7


def test_a_type_has_the_color_of_its_tag_unless_f32_has_it() -> None:
    assert format_colors(["u8 aBcd16b", "u8 plain"]) == {"u8 aBcd16b": BRIGHT[0], "u8 plain": GRAY}
    found = format_colors(["bf16 acdb", "acdb", "u8 acdb", "plain"])
    assert (found["acdb"], found["plain"], len(set(found.values()))) == (BRIGHT[2], GRAY, 4)


def test_the_format_of_a_part_is_that_of_the_whole() -> None:
    whole = MemoryDesc((2, 64, 5, 5), "f32", "nChw16c")
    assert format_name(whole.submemory((2, 32, 5, 5), (0, 16, 0, 0))) == "aBcd16b"
    assert format_name(MemoryDesc((2, 64, 5, 5), "f32", "nhwc").submemory((2, 32, 5, 5), (0, 16, 0, 0))) == "acdb"
    assert format_name(None) == "plain"


def test_the_picture_says_all_it_shows(plan: Plan, flow: Flow) -> None:
    svg = PlanPicture(plan).svg()
    root = ElementTree.fromstring(svg)
    titles = {title.text for title in root.iter(f"{SVG}title")}
    assert {mark.about for mark in flow.marks} | {wire.about for wire in flow.wires} <= titles
    wires = [path for path in root.iter(f"{SVG}path") if path.get("class") == "wire"]
    assert len(wires) == len(flow.wires) + len(flow.formats)
    halves = [path for path in root.iter(f"{SVG}path") if path.get("class") == "half"]
    assert len(halves) == 2 * (1 + len(plan.reorders))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words[0] == next(iter(root)).text
    assert all(f"{name}, {count} tensor{'s' * (count != 1)}" in words for name, count in flow.formats.items())


def test_two_pictures_on_one_page_share_no_names() -> None:
    names = []
    for seed in (1, 2):
        root = ElementTree.fromstring(PlanPicture(drawn_plan(seed)).svg())
        names += [element.get("id") for element in root.iter() if element.get("id")]
    assert len(names) == len(set(names)) == 4


def test_a_notebook_shows_a_plan_as_its_picture() -> None:
    plan = drawn_plan(3)
    assert plan._repr_html_() == PlanPicture(plan)._repr_html_() == PlanPicture(plan).html()
    assert not hasattr(plan, "_repr_svg_")


def test_the_picture_of_a_small_plan_is_as_it_was() -> None:
    svg = PlanPicture(plan_graph(branches(), HashedCosts(0))).svg()
    assert svg == GOLDEN.read_text()


def test_a_picture_is_saved_by_its_ending(tmp_path: Path) -> None:
    picture = PlanPicture(drawn_plan(3))
    picture.save(tmp_path / "a.svg")
    picture.save(tmp_path / "a.HTML")
    assert (tmp_path / "a.svg").read_text() == picture.svg()
    page = (tmp_path / "a.HTML").read_text()
    assert page.startswith("<!doctype html>\n")
    assert scrolling(picture.svg()) in page
    assert "<script" not in page


@pytest.mark.parametrize(("name", "shown"), [("a.jpg", "'.jpg'"), ("a", "'without an ending'")])
def test_a_picture_is_saved_as_nothing_else(name: str, shown: str, tmp_path: Path) -> None:
    with raises_exactly(InvalidArguments, f"the picture of a plan is saved as .svg, .png or .html, not {shown}"):
        PlanPicture(drawn_plan(3)).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
