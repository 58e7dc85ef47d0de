"""Plans with the formats of a plan for other dims: results, formats, shared constants, and when there is none."""

from dataclasses import fields, replace

import numpy as np
import pytest
from onnx import load_model_from_string, numpy_helper, parser

import inlay
from examples.random_networks import open_bert
from inlay.graph.costs import analytic
from inlay.graph.open_network import OpenNetwork
from inlay.graph.plan import Plan
from inlay.graph.planned_program import ADAPTED, PlannedProgram
from inlay.graph.planner.adaptation import collect_choices, has_same_operations, lacks_kernels
from inlay.graph.planner.domains import Tags
from inlay.graph.planning import Planner, PlanOptions, adapt_program
from inlay.graph.report import explain_plan
from tests.support.graph_programs import graph_of, plain_plan, relu
from tests.support.network_runs import run_model

CONVOLUTIONS = """<ir_version: 8, opset_import: ["": 17]>
convolutions (float[n, 16, h, w] x) => (float[n, 10] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w0)
    normal = BatchNormalization (a, scale, shift, mean, variance)
    b = Relu (normal)
    c = Conv <pads = [1, 1, 1, 1]> (b, w1)
    d = Add (c, b)
    e = Relu (d)
    f = GlobalAveragePool (e)
    g = Flatten (f)
    y = Gemm <transB = 1> (g, w2, bias)
}"""


def convolutions() -> bytes:
    """A model of convolutions with a batch normalization that is folded."""
    rng = np.random.default_rng(0)
    arrays = {
        "w0": rng.standard_normal((32, 16, 3, 3)) / 12,
        "w1": rng.standard_normal((32, 32, 3, 3)) / 16,
        "w2": rng.standard_normal((10, 32)),
        "bias": rng.standard_normal(10),
        **{name: rng.uniform(0.5, 1.5, 32) for name in ("scale", "shift", "mean", "variance")},
    }
    model = parser.parse_model(CONVOLUTIONS)
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items())
    return bytes(model.SerializeToString())


def tags(plan: PlannedProgram) -> Tags:
    """The tags of each tensor between steps."""
    return collect_choices(plan.program, plan.graph).tags


def as_plan(planned: PlannedProgram) -> Plan:
    """The same as a plan, which a report is of."""
    return Plan(**{field.name: getattr(planned, field.name) for field in fields(planned)})


def planner_of(model: bytes) -> Planner:
    network = inlay.load(model)
    assert isinstance(network, OpenNetwork)
    return Planner(network, PlanOptions(costs="probed"))


DIMS = [(4, 16, 8, 8), (2, 16, 5, 9), (33, 16, 2, 2)]


@pytest.mark.parametrize("dims", DIMS)
def test_an_adapted_plan_has_the_formats_of_the_known_one(dims: tuple[int, ...]) -> None:
    planner = planner_of(convolutions())
    known = planner.plan({"x": (1, 16, 8, 8)})
    adapted = planner.adapt(known, {"x": dims})
    assert adapted.method == ADAPTED
    assert adapted.inputs[0].dims == dims
    assert all(found <= tags(known)[name] for name, found in tags(adapted).items())
    assert not adapted.totals
    report = explain_plan(as_plan(adapted))
    assert f"the formats of a plan for other dims ({ADAPTED}, width" in report


@pytest.mark.parametrize("dims", DIMS)
def test_a_session_with_adapted_plans_computes_what_onnx_defines(dims: tuple[int, ...]) -> None:
    model = convolutions()
    session = inlay.compile(inlay.load(model), costs="probed")
    session.prepare({"x": (1, 16, 8, 8)})
    x = np.random.default_rng(1).standard_normal(dims, np.float32)
    found = session.run({"x": x})["y"]
    assert session.plans[-1].method == ADAPTED
    np.testing.assert_allclose(found, run_model(load_model_from_string(model), {"x": x})["y"], rtol=1e-4, atol=1e-4)


def test_shapes_share_packed_constants_and_arrays() -> None:
    session = inlay.compile(inlay.load(convolutions()), costs="probed")
    session.prepare({"x": (1, 16, 8, 8)})
    held = session.weights.nbytes
    for n in (2, 3, 7):
        session.run({"x": np.ones((n, 16, 8, 8), np.float32)})
    # The weights of Gemm may have one format for a row, and another for several.
    assert session.weights.nbytes <= held + 2 * 32 * 16 * 4
    arrays = [{op.name: dict(op.constants) for op in plan.graph.ops} for plan in session.plans]
    assert len(arrays) == 4
    for other in arrays[1:]:
        for name, constants in arrays[0].items():
            assert all(other[name][argument] is array for argument, array in constants.items())


def test_an_encoder_is_adapted_to_batch_and_sequence() -> None:
    model = open_bert(2, 32, 4)
    session = inlay.compile(inlay.load(model.SerializeToString()), costs="probed")
    for batch, sequence in ((1, 16), (3, 16), (2, 7), (1, 1)):
        x = np.random.default_rng(0).standard_normal((batch, sequence, 32), np.float32)
        (found,) = session.run({"embeddings": x}).values()
        (expected,) = run_model(model, {"embeddings": x}).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert [plan.method for plan in session.plans][1:3] == [ADAPTED] * 2


def test_a_network_with_other_operations_is_planned_for_itself() -> None:
    """An Expand to the dims that its input has already is a view; otherwise it repeats elements."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float y) { e = Expand(x, t) y = Relu(e) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([3, 4]), "t"))
    session = inlay.compile(inlay.load(model.SerializeToString()), costs="probed")
    for n, method in ((1, "elimination"), (3, "elimination")):
        x = np.random.default_rng(n).standard_normal((n, 4), np.float32)
        assert np.array_equal(session.run({"x": x})["y"], np.maximum(np.broadcast_to(x, (3, 4)), 0))
        assert session.plans[-1].method == method


def test_plans_of_other_operations_are_not_adapted() -> None:
    first = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y")
    second = graph_of([relu("other", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y")
    third = graph_of([relu("relu", "x", "z")], dict.fromkeys("xz", (2, 3)), "x", "z")
    fourth = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y", y=np.float64)
    fifth = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3, 1)), "x", "y")
    assert has_same_operations(first, first)
    for other in (second, third, fourth, fifth):
        assert not has_same_operations(first, other)
        assert adapt_program(other, analytic(), plain_plan(first)) is None


def test_a_step_that_only_numpy_computes_now_lacks_a_kernel() -> None:
    known = planner_of(convolutions()).plan({"x": (1, 16, 8, 8)}).program
    steps = [replace(step, impl="reference") if step.kind == "convolution" else step for step in known.steps]
    fallen = replace(known, steps=tuple(steps))
    assert lacks_kernels(fallen, known)
    assert not lacks_kernels(known, fallen)
    assert not lacks_kernels(fallen, fallen)


def test_a_plan_that_lacks_a_kernel_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = planner_of(convolutions())
    known = planner.plan({"x": (1, 16, 8, 8)})
    monkeypatch.setattr("inlay.graph.planning.lacks_kernels", lambda program, other: True)
    found = planner.adapt(known, {"x": (2, 16, 8, 8)})
    assert found.method == known.method != ADAPTED
    assert found.inputs[0].dims == (2, 16, 8, 8)
