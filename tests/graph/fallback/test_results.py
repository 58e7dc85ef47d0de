"""What ONNX Runtime computes in place of primitives is what NumPy computes, on the buffers of a session."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from math import erf
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.graph.fallback.sessions import FallbackSession, SubgraphInterface
from inlay.graph.fallback.support import LOSES_NAN, find_exclusion
from inlay.graph.network import Node, Subgraph, Tensor
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.operator_cases import attributes_of
from tests.support.operator_generators import GENERATORS, case_of
from tests.support.written_models import written_model

pytest.importorskip("onnxruntime")

I64, BOOL, F64, F16, U8 = (getattr(TensorProto, name) for name in ("INT64", "BOOL", "DOUBLE", "FLOAT16", "UINT8"))

OPERATORS: dict[str, tuple[str, int, Any]] = {
    "Sin": ("y = Sin(x)", TensorProto.FLOAT, np.sin),
    "Cos": ("y = Cos(x)", F64, np.cos),
    "Erf": ("y = Erf(x)", TensorProto.FLOAT, np.vectorize(erf, otypes=[np.float32])),
    "IsNaN": ("y = IsNaN(x)", TensorProto.FLOAT, np.isnan),
    "Mod": ("y = Mod(x, k)", I64, lambda x: x % 3),
    "Not": ("y = Not(x)", BOOL, np.logical_not),
    "Xor": ("y = Xor(x, x)", BOOL, np.zeros_like),
    "Less": ("y = Less(x, k)", I64, lambda x: x < 3),
    "CumSum": ("y = CumSum(x, k)", I64, lambda x: np.cumsum(x, 1)),
    "BitShift": ('y = BitShift <direction = "LEFT"> (x, x)', U8, lambda x: x << x),
}


def array_of(tensor: Tensor, seed: int = 0) -> Array:
    """Small numbers of both signs, exact in every type."""
    numbers = np.random.default_rng(seed).integers(0 if tensor.dtype.kind == "u" else -4, 5, tensor.dims)
    return np.asarray(numbers / 2 if tensor.dtype.kind == "f" else numbers).astype(tensor.dtype)


def planned(text: str, dims: Any, outputs: str = "y", *, fallback: Any = "auto", **options: Any) -> Plan:
    model = written_model(text, dims, outputs, **options)
    return inlay.plan(inlay.load(model.SerializeToString()), costs="analytic", fallback=fallback)


def kinds_of(session: ProgramSession) -> list[str]:
    return [impl for impl in session.impls.values() if impl in ("onnxruntime", "numpy")]


@pytest.mark.parametrize("operator", OPERATORS)
def test_one_node_gives_what_numpy_gives(operator: str) -> None:
    text, kind, oracle = OPERATORS[operator]
    options: dict[str, Any] = {"k": np.array(1 if operator == "CumSum" else 3)} if "k" in text else {}
    found = planned(text, (3, 4), kind=kind, **options)
    session = found.compile(engine="reference").prepare()
    x = array_of(found.graph.tensors["x"])
    assert kinds_of(session) == ["onnxruntime"]
    got = session.run({"x": x})["y"]
    assert got.dtype == oracle(x).dtype
    np.testing.assert_allclose(got, oracle(x), rtol=1e-5, atol=1e-6)


def test_adjacent_nodes_are_one_session_with_several_inputs_and_outputs() -> None:
    text = "a = Sin(x) b = IsNaN(a) c = Not(b) d = Relu(x) e = Cos(d) y = Where(c, a, e)"
    found = planned(text, (3, 4), "y c a")
    (step,) = (step for step in found.program.steps if step.kind == "reference")
    assert isinstance(step.node, Subgraph)
    assert [node.name for node in step.node.nodes] == ["a", "b", "c", "e", "y"]
    assert set(step.node.inputs) == {"x", "d"}
    assert set(step.node.outputs) == {"y", "c", "a"}
    x = array_of(found.graph.tensors["x"])
    got = pickle.loads(pickle.dumps(found)).compile(engine="reference").run({"x": x})
    np.testing.assert_allclose(got["y"], np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(got["a"], np.sin(x), rtol=1e-6)
    assert got["c"].all()


def test_nodes_around_a_primitive_are_two_sessions() -> None:
    found = planned("a = Sin(x) b = Relu(a) y = Where(c, b, a)", (2, 3), c=np.array([[True, False, True]]))
    session = found.compile(engine="reference").prepare()
    assert kinds_of(session) == ["onnxruntime", "onnxruntime"]
    x = array_of(found.graph.tensors["x"])
    wanted = np.where([[True, False, True]], np.maximum(np.sin(x), 0), np.sin(x))
    np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("dims", [(), (0, 4), (2, 0)])
def test_scalars_and_tensors_without_elements(dims: tuple[int, ...]) -> None:
    subgraph = Subgraph("s", "Subgraph", ("x",), ("y",), nodes=(Node("n", "Sin", ("x",), ("y",)),))
    x, y = (Tensor(name, dims, np.dtype(np.float32)) for name in "xy")
    session = FallbackSession(SubgraphInterface(subgraph, 17, (x,), (y,)), threads=1)
    arrays = {"x": np.full(dims, 0.5, np.float32), "y": np.empty(dims, np.float32)}
    session.bind(arrays)()
    np.testing.assert_allclose(arrays["y"], np.sin(arrays["x"]), rtol=1e-6)


def test_buffers_are_read_and_written_in_place_strided_or_not() -> None:
    subgraph = Subgraph("s", "Subgraph", ("x", "k"), ("y",), nodes=(Node("n", "Mod", ("x", "k"), ("y",)),))
    x, y = (Tensor(name, (3, 4), np.dtype(np.int64)) for name in "xy")
    constants = {"k": np.broadcast_to(np.array(3), (3, 4))}
    session = FallbackSession(SubgraphInterface(subgraph, 17, (x,), (y,), constants), threads=1)
    numbers = np.arange(12).reshape(3, 4)
    for source, result in ((numbers.copy(), np.zeros((3, 4), int)), (numbers.copy("F"), np.zeros((4, 3), int).T)):
        call = session.bind({"x": source, "y": result})
        call()
        assert np.array_equal(result, numbers % 3)
        source += 1  # the next run reads the elements of that time
        call()
        assert np.array_equal(result, (numbers + 1) % 3)


def test_large_constants_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlay.graph.fallback.sessions._MOST_STORED", 8)
    found = planned("e = Mod(x, k) y = Less(e, l)", (3, 4), kind=I64, k=np.full((3, 4), 3), l=np.array(1))
    x = array_of(found.graph.tensors["x"])
    assert np.array_equal(found.compile(engine="reference").run({"x": x})["y"], x % 3 < 1)


def test_threads_run_one_session_at_once() -> None:
    session = planned("a = Sin(x) y = Mod <fmod = 1> (a, k)", (64, 64), k=np.array([0.25], np.float32)).compile(
        "reference"
    )
    xs = [np.full((64, 64), i / 7, np.float32) for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: session.run({"x": x})["y"], xs))
    for x, y in zip(xs, results, strict=True):
        np.testing.assert_allclose(y, np.fmod(np.sin(x), np.float32(0.25)), atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_computes_with_a_session_of_its_own() -> None:
    session = planned("y = Sin(x)", (256, 256)).compile(engine="reference")
    x = np.full((256, 256), 0.5, np.float32)
    wanted = session.run({"x": x})["y"]
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(session.run({"x": x})["y"], wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("operator", GENERATORS)
def test_random_nodes_give_what_inlay_computes_by_numpy(operator: str) -> None:
    for seed in range(4):
        case = case_of(operator, seed)
        node = Node("n", operator, tuple(case.node.input), tuple(case.node.output), attributes_of(case.node))
        wanted = compute_node(node, case.opset, case.arrays)
        if find_exclusion(node, case.opset, (array.dtype for array in (*case.arrays.values(), *wanted.values()))):
            continue
        constants = {name: array for name, array in case.arrays.items() if array.dtype == np.int64}
        sides = [{n: a for n, a in case.arrays.items() if n not in constants}, wanted]
        reads, writes = (tuple(Tensor(n, a.shape, a.dtype) for n, a in side.items()) for side in sides)
        subgraph = Subgraph("s", "Subgraph", node.inputs, node.outputs, nodes=(node,))
        try:
            session = FallbackSession(SubgraphInterface(subgraph, case.opset, reads, writes, constants), threads=1)
        except inlay.Unimplemented:
            continue
        results = {name: np.empty_like(array) for name, array in wanted.items()}
        session.bind(sides[0] | results)()
        for name, array in wanted.items():
            a, b = results[name].astype(np.float64), array.astype(np.float64)
            greatest = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
            assert np.allclose(a, b, rtol=1e-4, atol=1e-4 * greatest, equal_nan=True), (case, attributes_of(case.node))


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1e38, 1e-42, 1.5, -2.5, 88.8, -104.0], np.float32)
UNARY = frozenset({"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp"}) | {
    *("Floor", "IsInf", "IsNaN", "Log", "Neg", "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt"),
    *("Sign", "Tan", "Tanh"),
}


@pytest.mark.parametrize("operator", sorted(UNARY - LOSES_NAN))
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, F64, F16])
def test_special_values_come_through(operator: str, kind: int) -> None:
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(helper.tensor_dtype_to_np_dtype(kind))
    ways = [planned(f"y = {operator}(x)", x.shape, kind=kind, opset=20, fallback=way) for way in ("auto", False)]
    got, wanted = (way.compile(engine="reference").run({"x": x})["y"].astype(np.float64) for way in ways)
    assert np.allclose(got, wanted, rtol=2e-3 if kind == F16 else 1e-4, equal_nan=True)
