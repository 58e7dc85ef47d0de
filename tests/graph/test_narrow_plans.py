"""Programs in bf16 and f16 with explicit conversions: special values, guards of 16-bit words, and saved plans."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto

import inlay
from inlay.errors import StalePlanWarning
from inlay.graph.costs import analytic, probed
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planning import plan_program
from inlay.graph.runtime.guards import build_guards
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans import plan_file
from inlay.graph.saved_plans.plan_file import read_plan
from inlay.graph.saved_plans.plan_writing import write_plan
from inlay.primitives.engine import get_engine
from tests.graph.test_special_values import COMBINING, ELEMENTWISE, Case, ident, node_of
from tests.support.narrow_graphs import narrow_graph
from tests.support.network_runs import model_of
from tests.support.written_models import nodes_of, written_model

TYPES: Mapping[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
ROUNDING: Mapping[str, float] = {"bf16": 2.0**-8, "f16": 2.0**-11}
ENGINES = sorted({"reference", get_engine().name.split()[0]})


def planned(
    nodes: Sequence[Any], dims: Sequence[int], constants: Mapping[str, Array], data_type: str, engine: str
) -> PlannedProgram:
    """A plan of these nodes that compute y of x, with all operations in a narrow type."""
    model = model_of(list(nodes), {"x": tuple(dims)}, ["y"], dict(constants), 20)
    graph = lower_network(load_bound(model.SerializeToString()))
    narrow = narrow_graph(graph, data_type)
    return plan_program(narrow, probed(engine), "direct")


def session_of(plan: PlannedProgram, engine: str) -> ProgramSession:
    return ProgramSession(plan.program, plan.graph, engine=engine)


def special_values(count: int, dtype: Any) -> Array:
    """So many elements: NaN, infinities, zeros, the largest numbers of the type, and numbers of any magnitude."""
    rng = np.random.default_rng(3)
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, 1.0, -1.0, 88.0, 300.0])
    ordinary = rng.standard_normal(count) * 10.0 ** rng.uniform(-3, 4, count)
    return np.where(rng.random(count) < 0.3, rng.choice(special, count), ordinary).astype(dtype).astype(np.float32)


def rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


ONE: dict[str, Array] = {"one": np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("head", ["", "h = Add(x, x)"], ids=["alone", "after an addition"])
@pytest.mark.parametrize("case", [*ELEMENTWISE, *COMBINING], ids=ident)
def test_special_values_come_through_in_bf16(case: Case, head: str, engine: str) -> None:
    """The sum may be rounded before the function to bf16 or f32, or be exact within a kernel."""
    x = special_values(8 * 16 * 4 * 4, ml_dtypes.bfloat16).reshape(8, 16, 4, 4)
    x[0], x[1] = -np.inf, np.inf
    nodes = [*nodes_of(head), node_of(case, "h" if head else "x")]
    found = session_of(planned(nodes, x.shape, case.constants, "bf16", engine), engine).run({"x": x})["y"]
    is_near = np.zeros(found.shape, bool)
    with np.errstate(all="ignore"):
        read = x.astype(np.float64) * (2 if head else 1)
        for src in (read, read.astype(np.float32), rounded(read)):
            wanted = rounded(case.formula(src.astype(np.float64)).astype(np.float32))
            is_near |= np.isclose(found, wanted, 2 * ROUNDING["bf16"], 1e-4, equal_nan=True)
    assert is_near.all(), found[~is_near]


@pytest.mark.parametrize("head", ["Conv(x, one)", "Add(x, x)"])
@pytest.mark.parametrize("function", ["Relu", "Sigmoid", "Softmax"])
def test_what_is_not_finite_within_a_network_is_not_lost_in_bf16(head: str, function: str) -> None:
    constants = ONE if "one" in head else {}
    plan = planned(
        nodes_of(f"h = {head} y = {function}(h)"), (2, 16, 4, 4), constants, "bf16", get_engine().name.split()[0]
    )
    session = session_of(plan, get_engine().name.split()[0])
    x = np.ones((2, 16, 4, 4), np.float32)
    assert np.isfinite(session.run({"x": x})["y"]).all()
    x[0, 3, 1, 1] = np.nan
    assert np.isnan(session.run({"x": x})["y"][0, 3, 1, 1])


def test_guards_are_on_the_buffers_of_16_bits() -> None:
    """The input is f32, and stays unchecked if its conversion is checked."""
    engine = get_engine().name.split()[0]
    plan = planned(nodes_of("a = Conv(x, one) b = Relu(a) y = Tanh(b)"), (2, 16, 4, 4), ONE, "bf16", engine)
    guards = build_guards(plan.program, plan.graph)
    assert guards.after is not None
    guarded = [*guards.inputs, *(name for names in guards.after.values() for name in names)]
    assert guarded
    types = {plan.program.buffers[name].desc.data_type.name for name in guarded}  # type: ignore[union-attr]
    assert types <= {"bf16", "f32"}


def test_weights_of_a_narrow_model_are_transformed_for_winograd() -> None:
    """The transform reads f32, and the array has two bytes an element."""
    rng, engine, count = np.random.default_rng(2), get_engine().name.split()[0], 64
    w = (rng.standard_normal((count, count, 3, 3)) / 24).astype(ml_dtypes.bfloat16)
    x = rng.standard_normal((1, count, 28, 28)).astype(ml_dtypes.bfloat16)
    model = written_model(
        "y = Conv <pads = [1, 1, 1, 1]> (x, w)", x.shape, "y", kind=TensorProto.BFLOAT16, opset=22, w=w
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    plan = inlay.plan(load_bound(model.SerializeToString()), costs=probed(engine), engine=engine, precision="f32")
    if not any(step.impl.startswith("winograd") for step in plan.program.steps):
        pytest.skip("no convolution is planned by Winograd's algorithm here")
    (weights,) = (op.constants["weights"] for op in plan.graph.ops if op.kind == "convolution")
    assert weights.dtype == w.dtype
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.einsum("nchwij,ocij->nohw", sliding_window_view(padded, (3, 3), (2, 3)), w.astype(float), optimize=True)
    found = plan.compile().run({"x": x})["y"].astype(float)
    np.testing.assert_allclose(found, wanted, rtol=2**-8, atol=1e-3)


# Saved plans


def layers(width: int = 192) -> OpGraph:
    """Three products with large weights, and small arrays beside them."""
    rng = np.random.default_rng(5)
    constants = {f"w{i}": rng.standard_normal((width, width)).astype(np.float32) / 14 for i in range(3)}
    constants["b"] = rng.standard_normal(width).astype(np.float32)
    text = "a = MatMul(x, w0) b0 = Add(a, b) c = Relu(b0) d = MatMul(c, w1) e = Tanh(d) y = MatMul(e, w2)"
    model = model_of(nodes_of(text), {"x": (4, width)}, ["y"], constants, 20)
    return lower_network(load_bound(model.SerializeToString()))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("data_type", ["bf16", "f16"])
def test_weights_stay_in_their_type_in_saved_plans(tmp_path: Path, data_type: str, engine: str) -> None:
    wide, narrow = tmp_path / "wide.inlay", tmp_path / "narrow.inlay"
    x = np.random.default_rng(1).standard_normal((4, 192)).astype(np.float32)
    write_plan(plan_program(layers(), probed(engine)), wide, engine)
    plan = plan_program(narrow_graph(layers(), data_type), probed(engine))
    write_plan(plan, narrow, engine)
    assert narrow.stat().st_size <= 0.55 * wide.stat().st_size
    saved = read_plan(narrow).plan
    weights = [op.constants["weights"] for op in saved.graph.ops if "weights" in op.constants]
    assert {array.dtype for array in weights} == {np.dtype(TYPES[data_type])}
    with session_of(plan, engine) as session, inlay.Session.load(narrow, engine=engine) as loaded:
        assert loaded.note == ""
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], session.run({"x": x})["y"])


def test_a_saved_plan_in_bf16_can_be_saved_again(tmp_path: Path) -> None:
    path, again = tmp_path / "one.inlay", tmp_path / "again.inlay"
    write_plan(plan_program(narrow_graph(layers(), "bf16"), analytic("AVX512_CORE_BF16", 1)), path, "reference")
    write_plan(read_plan(path).plan, again, "reference")
    assert again.read_bytes() == path.read_bytes()


def test_weights_that_a_step_uses_in_f32_stay_f32(tmp_path: Path) -> None:
    """Two products of one array, one of them in bf16."""
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = model_of(nodes_of("a = MatMul(x, w) y = MatMul(a, w)"), {"x": (4, 64)}, ["y"], {"w": w}, 20)
    graph = lower_network(load_bound(model.SerializeToString()))
    plan = plan_program(narrow_graph(graph, "bf16", [graph.ops[0].name]), analytic("AVX512_CORE_BF16", 1))
    write_plan(plan, tmp_path / "net.inlay", "reference")
    saved = read_plan(tmp_path / "net.inlay").plan
    for op in saved.graph.ops:
        if "weights" in op.constants:
            np.testing.assert_array_equal(op.constants["weights"], w)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT16])
def test_a_plan_in_f32_of_a_narrow_model_has_its_weights_once(tmp_path: Path, kind: int, engine: str) -> None:
    """The array of the narrow type is made of the packed copy in f32."""
    dtype = ml_dtypes.bfloat16 if kind == TensorProto.BFLOAT16 else np.float16
    w = (np.random.default_rng(0).standard_normal((256, 256)) / 16).astype(dtype)
    model = written_model("y = MatMul(x, w)", (4, 256), "y", kind=kind, w=w)
    model.graph.output[0].type.tensor_type.elem_type = kind
    network = load_bound(model.SerializeToString())
    plan, path = inlay.plan(network, costs="probed", engine=engine, precision="f32"), tmp_path / "net.inlay"
    plan.save(path)
    assert 4 * w.size < path.stat().st_size < 4.5 * w.size
    (weights,) = (op.constants["weights"] for op in read_plan(path).plan.graph.ops if "weights" in op.constants)
    assert weights.dtype == w.dtype
    np.testing.assert_array_equal(weights, w)
    x = np.random.default_rng(1).standard_normal((4, 256)).astype(dtype)
    with plan.compile() as session, inlay.Session.load(path, engine=engine) as loaded:
        found = loaded.run({"x": x})["y"]
        np.testing.assert_array_equal(found, session.run({"x": x})["y"])
    np.testing.assert_allclose(found.astype(float), x.astype(float) @ w.astype(float), rtol=2**-7, atol=1e-2)


def test_another_processor_plans_a_saved_graph_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rounded weights; types of storage in which the processor does not compute are left out."""
    path, graph = tmp_path / "net.inlay", narrow_graph(layers(), "bf16")
    graph = replace(graph, storage_types={})
    write_plan(plan_program(graph, analytic("AVX512_CORE_BF16", 1)), path, "reference")
    x = np.random.default_rng(1).standard_normal((4, 192)).astype(np.float32)
    with inlay.Session.load(path, engine="reference") as loaded:
        wanted = loaded.run({"x": x})["y"]
    monkeypatch.setattr(plan_file, "__version__", "0.0")
    with pytest.warns(StalePlanWarning), inlay.Session.load(path, engine="reference") as again:
        np.testing.assert_allclose(again.run({"x": x})["y"], wanted, rtol=2**-6, atol=2**-6)
