"""The page of a plan: its JSON tells the plan, its graph is whole in every form, and it needs nothing but itself."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import FileError, InvalidArguments
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph, ReshapeView
from inlay.graph.plan import Plan, plan_graph
from inlay.graph.report import figures
from inlay.render.network.flow import flow_of
from inlay.render.plan_page import PlanPage
from inlay.render.plan_page.folding import FoldedFlow, FoldedLoop, FoldedWire, Segment, find_segments, fold_flow
from inlay.render.plan_page.page import SCRIPTS
from inlay.render.plan_page.positions import DrawnWire, GraphPositions, SegmentForm, position_graph
from tests.support.graph_programs import F32, RELU
from tests.support.plan_pages import PageParts, graph_of, known_plan, path_ends, plan_with_blocks
from tests.support.planner_graphs import HashedCosts
from tests.support.profiles import profile_of
from tests.support.refusals import raises_exactly

NETWORKS = ("squeezenet", "densenet121", "encoder")
CASES = [*range(15), *NETWORKS]


def plan_of(case: int | str) -> Plan:
    return plan_with_blocks(case) if isinstance(case, int) else known_plan(case)


@pytest.fixture(scope="module", params=CASES)
def plan(request: pytest.FixtureRequest) -> Plan:
    return plan_of(request.param)


@pytest.fixture(scope="module")
def folded(plan: Plan) -> FoldedFlow:
    return fold_flow(plan, flow_of(plan))


@pytest.fixture(scope="module")
def page(plan: Plan) -> str:
    return PlanPage(plan).html()


@pytest.fixture(scope="module")
def positions(folded: FoldedFlow) -> GraphPositions:
    return position_graph(folded)


# The record


def test_every_reorder_is_recorded_with_its_bytes_time_and_reason(plan: Plan) -> None:
    record = PlanPage(plan).record()
    reorders = [(i, step) for i, step in enumerate(plan.program.steps) if step.kind == "reorder"]
    assert [one["step"] for one in record["reorders"]] == [i for i, _ in reorders]
    for (_, step), one in zip(reorders, record["reorders"], strict=True):
        assert (one["nbytes"], one["ms"], one["without"]) == (step.nbytes, step.ms, step.without)
        assert one["nbytes"] > 0
        assert re.search(r" reads | is returned in | stores it as ", one["why"])
        assert one["tensor"] == plan.program.buffers[step.reads["src"]].tensor


def test_some_of_the_plans_have_reorders_and_some_have_blocks() -> None:
    plans = [plan_of(case) for case in CASES]
    assert sum(len(plan.reorders) for plan in plans) > 20
    blocks = [segment for plan in plans for segment in fold_flow(plan, flow_of(plan)).segments if segment.is_block]
    assert len(blocks) > 12


def test_shares_sum_to_one_and_are_those_of_the_times(plan: Plan) -> None:
    steps = PlanPage(plan).record()["steps"]
    assert math.fsum(step["share"] for step in steps) == pytest.approx(1, abs=1e-12)
    for one, step in zip(steps, plan.program.steps, strict=True):
        assert one["share"] == pytest.approx(step.ms / plan.ms, rel=1e-9)


def test_measured_times_are_those_of_the_profile(plan: Plan) -> None:
    times = [0.5 + i for i in range(len(plan.program.steps))]
    profile = profile_of(plan.program, plan.graph, times, run=7.0)
    record = PlanPage(plan, profile).record()
    for one, timing in zip(record["steps"], profile, strict=True):
        spread = timing.time
        assert one["measured"] == {
            "ms": timing.ms, "low": spread.low, "high": spread.high, "share": timing.share, "impl": timing.impl,
        }  # fmt: skip
    assert math.fsum(one["measured"]["share"] for one in record["steps"]) == pytest.approx(1, abs=1e-12)
    assert record["measured"]["run"] == {"ms": 7.0, "low": 7.0, "high": 7.0}
    assert record["measured"]["steps_ms"] == math.fsum(times)


def test_the_profile_of_a_session_is_accepted() -> None:
    plan = plan_graph(relu_graph("relu"), HashedCosts())
    profile = plan.compile("reference").prepare().profile({"x": np.ones((1, 3), np.float32)}, runs=3)
    (step,) = PlanPage(plan, profile).record()["steps"]
    assert step["measured"]["ms"] == profile[0].ms > 0


def test_the_record_agrees_with_the_figures_of_the_report(plan: Plan) -> None:
    record, known = PlanPage(plan).record(), figures(plan)
    assert {one["name"]: one["ms"] for one in record["plans"]} == {"this plan": plan.ms, **known["totals"]}
    for one, step in zip(record["steps"], known["steps"], strict=True):
        assert {name: one[name] for name in ("name", "kind", "ops", "impl", "ms", "nbytes", "source", "without")} == {
            name: step[name] for name in ("name", "kind", "ops", "impl", "ms", "nbytes", "source", "without")
        }
        for kind in ("reads", "writes"):
            assert one[kind] == {argument: used["buffer"] for argument, used in step[kind].items()}
    for name, buffer in plan.program.buffers.items():
        one = record["buffers"][name]
        assert buffer.desc is not None
        assert one["descriptor"] == str(buffer.desc)
        assert one["size"] == buffer.desc.size
        assert tuple(one["dims"]) == plan.graph.tensors[buffer.tensor].dims


# Folding


def test_segments_are_the_steps_in_order(plan: Plan, folded: FoldedFlow) -> None:
    assert [segment.first for segment in folded.segments] == [0, *(one.stop for one in folded.segments[:-1])]
    assert folded.segments[-1].stop == len(plan.program.steps)
    assert all(one.is_block == (number % 2 == 1) for number, one in enumerate(folded.segments))


def test_each_mark_has_one_node_and_equal_steps_share_it(plan: Plan, folded: FoldedFlow) -> None:
    marks = [mark for node in folded.nodes for mark in node.marks]
    assert sorted(marks) == list(range(len(folded.flow.marks)))
    steps = [i for i, mark in enumerate(folded.flow.marks) if mark.ms is not None]
    for segment in folded.segments:
        for position in range(segment.length):
            equal = steps[segment.first + position : segment.stop : segment.length]
            assert len({folded.node_of[mark] for mark in equal}) == (1 if segment.is_block else len(equal))
            kinds = {plan.program.steps[steps.index(mark)].kind for mark in equal}
            assert len(kinds) == 1


def test_wires_of_the_folded_graph_lead_to_later_nodes_and_are_those_of_the_flow(folded: FoldedFlow) -> None:
    assert all(wire.source < target for wire in folded.wires for target in wire.targets)
    lines: list[FoldedWire | FoldedLoop] = [*folded.wires, *folded.loops]
    ends = {(one, target) for line in lines for one in line.wires for target in line.targets}
    for number, wire in enumerate(folded.flow.wires):
        assert {(number, folded.node_of[target]) for target in wire.targets} <= ends
    for loop in folded.loops:
        assert all(folded.nodes[target].segment == folded.nodes[loop.source].segment for target in loop.targets)


@given(st.lists(st.integers(0, 3), max_size=24), st.data())
def test_segments_of_any_steps(keys: list[int], data: st.DataObject) -> None:
    live = [data.draw(st.integers(0, 5)) for _ in keys]
    segments = list(find_segments(keys, live))
    assert [i for one in segments for i in range(one.first, one.stop)] == list(range(len(keys)))
    for one in segments:
        if one.is_block:
            assert one.length > 1
            period = keys[one.first : one.first + one.length]
            assert keys[one.first : one.stop] == period * one.count
            assert one.stop == len(keys) or one.stop in {other.first for other in segments}


def test_a_block_begins_where_the_fewest_tensors_pass() -> None:
    blocks = [one for one in find_segments("pabcabcabq", [0, 2, 2, 1, 2, 2, 1, 2, 2, 2]) if one.is_block]
    assert blocks == [Segment(3, 3, 2)]


@pytest.mark.parametrize(
    ("name", "blocks"), [("encoder", [12]), ("densenet121", [6, 12, 24, 16]), ("squeezenet", [2, 2, 4])]
)
def test_blocks_of_known_networks_are_found(name: str, blocks: list[int]) -> None:
    plan = known_plan(name)
    folded = fold_flow(plan, flow_of(plan))
    assert [segment.count for segment in folded.segments if segment.is_block] == blocks
    assert len(folded.nodes) < 50 < len(folded.flow.marks) or name == "squeezenet"


# Positions


def forms_of(positions: GraphPositions) -> list[SegmentForm]:
    return [*positions.folded, *(form for form in positions.unfolded if form is not None)]


def test_no_node_covers_another_and_all_are_within_their_form(positions: GraphPositions) -> None:
    for form in forms_of(positions):
        for one, other in combinations(form.boxes.values(), 2):
            is_beside = abs(one.x - other.x) >= (one.width + other.width) / 2 - 1e-6
            assert is_beside or one.y + one.height <= other.y or other.y + other.height <= one.y
        left, right = form.frame or (form.left, form.right)
        for box in form.boxes.values():
            assert left - 1e-6 <= box.x - box.width / 2
            assert box.x + box.width / 2 <= right + 1e-6
            assert 0 <= box.y <= box.y + box.height <= form.height


def test_wires_cross_a_boundary_at_the_same_places_in_all_forms(positions: GraphPositions) -> None:
    for number in range(len(positions.folded) - 1):
        above, below = (
            [form for form in (positions.folded[i], positions.unfolded[i]) if form is not None]
            for i in (number, number + 1)
        )
        lower = [{(wire.format, end[0]) for wire, end in ends_at(form, form.height, 1)} for form in above]
        upper = [{(wire.format, end[0]) for wire, end in ends_at(form, 0.0, 0)} for form in below]
        assert all(places == lower[0] for places in (*lower, *upper))


def ends_at(form: SegmentForm, y: float, end: int) -> list[tuple[DrawnWire, tuple[float, float]]]:
    """The wires with a part that begins (`end` 0) or ends (1) at a height, and this point."""
    return [
        (wire, ends[end])
        for wire in form.wires
        if not wire.is_loop
        for ends in path_ends(wire.path)
        if abs(ends[end][1] - y) < 0.06
    ]


def test_each_wire_of_a_form_leads_from_and_to_its_marks(folded: FoldedFlow, positions: GraphPositions) -> None:
    for number, form in enumerate(positions.unfolded):
        if form is None:
            continue
        inner = [mark for mark, position in enumerate(folded.positions) if position.segment == number]
        assert sorted(form.boxes) == inner
        for mark in inner:
            box = form.boxes[mark]
            arriving = {i for i, wire in enumerate(folded.flow.wires) if mark in wire.targets}
            drawn = {
                one
                for wire in form.wires
                for _, (x, y) in path_ends(wire.path)
                if abs(y - box.y) < 0.06 and abs(x - box.x) <= box.width / 2
                for one in wire.wires
            }
            assert arriving <= drawn


def test_a_long_network_does_not_drift_aside() -> None:
    plan = known_plan("encoder")
    positions = position_graph(fold_flow(plan, flow_of(plan)))
    folded, unfolded = positions.folded[1], positions.unfolded[1]
    assert unfolded is not None
    assert unfolded.height > 8 * folded.height
    assert unfolded.right - unfolded.left < 1.5 * (folded.right - folded.left)
    assert len(unfolded.starts) == 12
    assert all(one < other for one, other in pairwise(unfolded.starts))


# The graph


def test_the_graph_shows_each_step_folded_and_unfolded(page: str, folded: FoldedFlow) -> None:
    graph = graph_of(page)
    for kind, segments in (("folded", folded.segments), ("unfolded", [one for one in folded.segments if one.is_block])):
        shown = [
            int(mark)
            for form in graph.iter("g")
            if form.get("class") == f"form {kind}"
            for node in form.iter("g")
            if "node" in (node.get("class") or "").split()
            for mark in (node.get("data-marks") or "").split()
        ]
        assert len(shown) == len(set(shown))
        steps = [mark for mark in shown if folded.flow.marks[mark].ms is not None]
        assert len(steps) == sum(one.length * one.count for one in segments)
    names = [element.get("id") for element in graph.iter() if element.get("id")]
    assert len(names) == len(set(names))


def test_every_node_and_block_has_a_name_and_a_role(page: str) -> None:
    for element in graph_of(page).iter("g"):
        if {"node", "fold"} & set((element.get("class") or "").split()):
            assert element.get("role") == "button"
            assert (element.get("aria-label") or "").strip()


def test_shares_of_folded_steps_are_sums(plan: Plan, page: str, folded: FoldedFlow) -> None:
    steps = [i for i, mark in enumerate(folded.flow.marks) if mark.ms is not None]
    shares = {mark: plan.program.steps[i].ms / plan.ms for i, mark in enumerate(steps)}
    for group in graph_of(page).iter("g"):
        if group.get("class") == "node step":
            marks = [int(mark) for mark in (group.get("data-marks") or "").split()]
            expected = f"{100 * sum(shares[mark] for mark in marks):.1f} %"
            assert expected in [text.text for text in group.iter("text")]


# The page


def relu_graph(name: str, network: str = "net") -> OpGraph:
    tensors = {one: Tensor(one, (1, 3), F32) for one in ("x", "y")}
    ops = (Op(name, "eltwise", {"src": "x"}, {"dst": "y"}, parameters=RELU, nodes=(name,)),)
    return OpGraph(network, 17, ("x",), ("y",), ops, tensors)


def test_the_page_asks_nobody_for_anything(page: str) -> None:
    parts = PageParts(page)
    assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}/|\bfetch\(|XMLHttpRequest|import\(|@import|url\(", page)
    for _, attributes in parts.elements:
        assert not {"src", "srcset", "action", "style", "onclick", "onload"} & attributes.keys()
        assert attributes.get("href", "data:,") == "data:,"


def test_the_policy_allows_the_style_and_the_scripts_of_the_page_alone(page: str) -> None:
    parts = PageParts(page)
    (policy,) = [one.get("content") for _, one in parts.elements if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    allowed = set(re.findall(r"'sha256-[^']+'", policy))
    texts = [text for _, attributes, text in parts.texts if attributes.get("type") != "application/json"]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}
    assert hashes == allowed
    assert len(texts) == 1 + len(SCRIPTS)
    assert "unsafe" not in policy


def test_the_data_of_the_page_are_the_record_and_the_graph(plan: Plan, page: str, folded: FoldedFlow) -> None:
    data = PageParts(page).data
    assert data["plan"] == json.loads(json.dumps(PlanPage(plan).record()))
    marks = data["graph"]["marks"]
    assert [mark["node"] for mark in marks] == list(folded.node_of)
    assert [mark["step"] for mark in marks if mark["step"] is not None] == list(range(len(plan.program.steps)))
    assert data["graph"]["blocks"] == [segment.is_block for segment in folded.segments]


def test_names_from_a_model_are_text_and_nothing_else() -> None:
    evil = "</script><script>alert(1)</script><b>&amp;\x1b[31m"
    plan = plan_graph(relu_graph(evil, evil), HashedCosts())
    page = PlanPage(plan).html()
    assert "<script>alert" not in page
    assert "\x1b" not in page
    parts = PageParts(page)
    assert [attributes.get("id") for tag, attributes in parts.elements if tag == "script"] == ["data", *[None] * 4]
    assert parts.data["plan"]["steps"][0]["name"] == evil


def test_tables_list_all_steps_reorders_and_plans(plan: Plan, page: str) -> None:
    tables = {
        name: ElementTree.fromstring(match[0].replace("<br>", ""))
        for name in ("steps", "reorders", "plans")
        if (match := re.search(rf'<table id="{name}-table">.*?</table>', page, re.DOTALL))
    }
    rows = [row.get("data-steps") or "" for row in tables["steps"].iter("tr")][1:]
    assert sorted(int(step) for row in rows for step in row.split()) == list(range(len(plan.program.steps)))
    assert ("reorders" in tables) == bool(plan.reorders)
    if plan.reorders:
        assert len(list(tables["reorders"].iter("tr"))) == 1 + len(plan.reorders)
    names = ["".join(row[0].itertext()) for row in tables["plans"].iter("tr")][1:]
    assert names == ["this plan", *plan.totals]


def test_a_plan_without_steps_has_a_page() -> None:
    tensors = {"x": Tensor("x", (1, 2, 3), F32), "y": Tensor("y", (2, 3), F32)}
    view = Op("flat", "view", {"src": "x"}, {"dst": "y"}, transforms=(ReshapeView((2, 3)),))
    plan = plan_graph(OpGraph("views", 17, ("x",), ("y",), (view,), tensors), HashedCosts())
    record = PlanPage(plan).record()
    assert record["steps"] == record["reorders"] == []
    assert 'class="node view"' in PlanPage(plan).html()


def test_a_plan_for_other_dims_is_compared_with_none() -> None:
    plan = replace(known_plan("squeezenet"), totals={}, method="adapted")
    assert "The plan was not compared with others" in PlanPage(plan).html()


# Files and mistakes


def test_a_page_is_saved_whole(tmp_path: Path) -> None:
    plan = plan_with_blocks(1)
    plan.save_page(tmp_path / "plan.HTML")
    assert (tmp_path / "plan.HTML").read_text() == PlanPage(plan).html() == PlanPage(plan).html()
    with pytest.raises(FileError):
        plan.save_page(tmp_path / "nowhere" / "plan.html")


@pytest.mark.parametrize(("name", "shown"), [("plan.svg", "'.svg'"), ("plan", "'without an ending'")])
def test_a_page_is_saved_as_nothing_else(name: str, shown: str, tmp_path: Path) -> None:
    with raises_exactly(InvalidArguments, f"the page of a plan is saved as .html, not {shown}"):
        plan_with_blocks(1).save_page(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_of_other_steps_is_refused(tmp_path: Path) -> None:
    plan, other = plan_with_blocks(1), plan_graph(relu_graph("relu", "small"), HashedCosts())
    text = (
        f"the profile of 'small' has 1 step, and not the {len(plan.program.steps)} of the plan of 'drawn': profile the "
        "session that plan.compile() returns"
    )
    with raises_exactly(InvalidArguments, text):
        plan.save_page(tmp_path / "plan.html", profile_of(other.program, other.graph, [1.0]))
    assert list(tmp_path.iterdir()) == []


def test_a_profile_of_exact_kernels_is_refused() -> None:
    plan = plan_graph(relu_graph("relu"), HashedCosts())
    text = (
        "the profile is of exact kernels, which ran because its inputs lead to NaN, infinities or numbers near the "
        "largest, and not of the steps of the plan: profile other inputs"
    )
    with raises_exactly(InvalidArguments, text):
        PlanPage(plan, profile_of(plan.program, plan.graph, [1.0], is_exact=True)).html()


def test_scripts_and_style_are_short_files_without_libraries() -> None:
    assets = sorted((path.name, path.read_text()) for path in (files("inlay.render.plan_page") / "assets").iterdir())
    assert [name for name, _ in assets] == sorted([*SCRIPTS, "page.css", "page.html"])
    for name, text in assets:
        assert text.count("\n") <= 600, name
        assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE), name


def test_names_of_tags_are_familiar() -> None:
    record = PlanPage(known_plan("squeezenet")).record()
    assert {buffer["format"] for buffer in record["buffers"].values()} >= {"nchw", "nChw16c"}
