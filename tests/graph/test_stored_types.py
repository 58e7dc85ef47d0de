"""The types in which a plan stores tensors, in its report, its figures, and its picture."""

import json
from dataclasses import replace

import numpy as np
import pytest

from inlay import MemoryDesc
from inlay.graph.op_graph import Op
from inlay.graph.plan import Plan
from inlay.graph.program import Step
from inlay.graph.report import explain_plan, figures, heading
from inlay.graph.step_texts import StepTexts
from inlay.render.network import PlanPicture
from inlay.render.network.flow import flow_of
from tests.graph.test_report import plan_of
from tests.support.graph_programs import Case, Writing, conv, drawn, graph_of, relu

DIMS = (2, 16, 4, 5)


@pytest.fixture
def case() -> Case:
    """An image that becomes bf16 channels last, a convolution in bf16, and a function of the result in f32."""
    graph = graph_of(
        [conv("conv", "x", "a", drawn(16, 16, 1, 1)), relu("last", "a", "y")], dict.fromkeys("xay", DIMS), "x", "y"
    )
    writing = Writing(graph).buffer("x y", "nchw").buffer("x:bf16", MemoryDesc(DIMS, "bf16", "nhwc"), tensor="x")
    writing.buffer("a", MemoryDesc(DIMS, "bf16", "nhwc")).buffer("a:f32", "nchw", tensor="a")
    writing.reorder("x", "x:bf16").step("conv", src="x:bf16").reorder("a", "a:f32")
    return writing.step("last", src="a:f32").case()


@pytest.fixture
def plan(case: Case) -> Plan:
    found = plan_of(case, precision="bf16")
    whys = {"x to x:bf16": "conv reads bf16 acdb", "a to a:f32": "last reads f32 abcd"}
    steps = tuple(replace(step, why=whys.get(step.name, "")) for step in found.program.steps)
    return replace(found, program=replace(found.program, steps=steps))


@pytest.fixture
def quantized() -> Plan:
    """An image that is quantized, becomes channels last, and then the source of a function of integers."""
    ops = [Op("quantize", "reorder", {"src": "x"}, {"dst": "q"}), relu("last", "q", "y")]
    graph = graph_of(ops, dict.fromkeys("xqy", DIMS), "x", "y", q=np.uint8, y=np.uint8)
    integers = {tag: MemoryDesc(DIMS, "u8", tag) for tag in ("nchw", "nhwc")}
    writing = Writing(graph).buffer("x", "nchw").buffer("q y", integers["nchw"])
    writing.buffer("q:nhwc", integers["nhwc"], tensor="q").buffer("y:nhwc", integers["nhwc"], tensor="y")
    writing.step("quantize").reorder("q", "q:nhwc").step("last", src="q:nhwc", dst="y:nhwc").reorder("y:nhwc", "y")
    return plan_of(writing.case(), precision="f32")


def step_of(plan: Plan, name: str) -> Step:
    return next(step for step in plan.program.steps if step.name == name)


def test_a_type_that_is_not_f32_precedes_its_format(plan: Plan) -> None:
    texts = StepTexts(plan.program, plan.graph)
    assert [texts.formats(step) for step in plan.program.steps] == [
        "nchw -> bf16 nhwc",
        "bf16 nhwc",
        "bf16 nhwc -> nchw",
        "nchw",
    ]


def test_the_reason_of_a_reorder_has_the_type_once(plan: Plan) -> None:
    texts = StepTexts(plan.program, plan.graph)
    assert texts.reason(step_of(plan, "x to x:bf16")) == "conv reads bf16 nhwc"
    assert texts.reason(step_of(plan, "a to a:f32")) == "last reads nchw"


def test_a_reason_without_a_type_has_that_of_the_buffer(plan: Plan) -> None:
    step = replace(step_of(plan, "x to x:bf16"), why="conv reads acdb")
    assert StepTexts(plan.program, plan.graph).reason(step) == "conv reads bf16 nhwc"


def test_the_heading_names_a_precision_that_was_requested(plan: Plan) -> None:
    assert heading(plan)[1] == "measured costs of onednn 3.2.0, AVX2, 2 threads, precision bf16"
    assert heading(replace(plan, precision="model"))[1] == "measured costs of onednn 3.2.0, AVX2, 2 threads"


def test_the_report_has_the_types_of_integers(quantized: Plan) -> None:
    text = explain_plan(quantized, every_step=True)
    formats = ("abcd -> u8 abcd", "u8 abcd -> u8 acdb", "u8 acdb", "u8 acdb -> u8 abcd")
    lines = [line for line in text.split("\n") if line.endswith(("0.100", "0.200", "0.300", "0.400"))]
    assert all(f"  {one}  " in line for one, line in zip(formats, lines, strict=True))
    assert max(map(len, text.split("\n"))) <= 80


def test_the_figures_have_the_type_beside_the_format(quantized: Plan) -> None:
    found = json.loads(json.dumps(figures(quantized)))
    assert found["precision"] == "f32"
    expected = {"tensor": "q", "buffer": "q:nhwc", "data_type": "u8", "format": "acdb"}
    assert found["steps"][2]["reads"]["src"] == expected
    reorder = found["reorders"][0]
    assert [reorder[name] for name in ("from_type", "from", "to_type", "to")] == ["f32", "abcd", "u8", "abcd"]


def test_the_picture_has_a_color_for_each_type_and_format(plan: Plan) -> None:
    flow = flow_of(plan)
    assert set(flow.formats) == {"plain", "bf16 acdb"}
    assert [mark.formats for mark in flow.marks if mark.formats] == [("plain", "bf16 acdb"), ("bf16 acdb", "plain")]
    abouts = {wire.buffer: wire.about for wire in flow.wires}
    assert abouts["a"] == "a, 2x16x4x5 of float32, acdb, stored as bf16"
    assert ">bf16 acdb, 2 tensors<" in PlanPicture(plan).svg()
