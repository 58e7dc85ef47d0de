"""Products of dynamically quantized elements beside NumPy: orders of factors, scales, zero points, types and dims."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.costs import analytic
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.plan import plan_graph
from inlay.graph.runtime.program_session import ProgramSession
from tests.graph.quantized.test_integers import convolve, node
from tests.support.graph_programs import plain_plan

FACTORS = {
    "usual": (("s", "ws"), ("c", "p")),
    "swapped": (("ws", "s"), ("p", "c")),
    "one after the other": (("c", "s"), ("p", "ws")),
    "weights first": (("ws", "c"), ("s", "p")),
}
"""Operands of the two products `p` and `y`, of c, the product of integers, and the scales s and ws."""


def lower(
    product: Any, constants: dict[str, Array], x: Array, dims: tuple[int, ...], factors: str, bias: str
) -> OpGraph:
    """The graph of a product of integers with a source that the network quantizes."""
    first, second = FACTORS[factors]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantize"),
        product,
        node("Cast", "i", "c", to=TensorProto.FLOAT),
        node("Mul", " ".join(first), "p"),
        node("Mul", " ".join(second), "r" if bias else "y"),
    ]
    nodes += [node("Add", bias, "y")] if bias else []
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in (("x", x.shape), ("y", dims))
    ]
    values = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "dynamic", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return lower_network(load_bound(model.SerializeToString()))


def run(graph: OpGraph, x: Array, engine: str | None) -> Array:
    plan = plain_plan(graph) if engine else plan_graph(graph, analytic("avx512_core_vnni"))
    with ProgramSession(plan.program, graph, engine=engine) as session:
        return session.run({"x": x})["y"]


def quantized(x: Array) -> tuple[Array, float]:
    """Integers less their zero point, and the scale, by ONNX's formulas in f32."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32(high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.float64) - zero, float(scale)


def assert_is_close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@st.composite
def weights_of(draw: st.DrawFn, *dims: int, axis: int) -> tuple[Array, Array, Array]:
    """Weights, their scales, one or one along an axis, and their zero point."""
    dtype: np.dtype[Any] = np.dtype(draw(st.sampled_from(["int8", "uint8"])))
    info, rng = np.iinfo(dtype), np.random.default_rng(draw(st.integers(0, 99)))
    scales = rng.uniform(0.01, 0.1, draw(st.sampled_from([(), (1,), (dims[axis],)]))).astype(np.float32)
    zero = draw(st.sampled_from([0, 128, 117]) if dtype == np.uint8 else st.sampled_from([0, -5]))
    return rng.integers(info.min, info.max + 1, dims).astype(dtype), scales, np.array(zero, dtype)


@settings(max_examples=30)
@given(
    st.data(),
    st.sampled_from(sorted(FACTORS)),
    st.sampled_from(["", "r b", "b r"]),
    st.sampled_from([None, "reference"]),
)
def test_matrix_products(data: st.DataObject, factors: str, bias: str, engine: str | None) -> None:
    stack, columns = data.draw(st.sampled_from([(4,), (2, 3), (2, 1, 5)])), data.draw(st.integers(1, 20))
    depth = data.draw(st.integers(1, 70))
    weights, scales, zero = data.draw(weights_of(depth, columns, axis=1))
    x = np.random.default_rng(depth).standard_normal((*stack, depth)).astype(np.float32)
    addend = np.linspace(-2, 2, columns, dtype=np.float32)
    constants = {"w": weights, "ws": scales, "wz": zero, "b": addend}
    graph = lower(node("MatMulInteger", "q w z wz", "i"), constants, x, (*stack, columns), factors, bias)
    assert {op.kind for op in graph.ops} - {"view"} == {"dynamic_quantization", "matmul"}
    integers, scale = quantized(x)
    expected = integers @ (weights.astype(np.float64) - float(zero)) * scale * scales
    assert_is_close(run(graph, x, engine), expected + addend if bias else expected)


@settings(max_examples=30)
@given(
    st.data(),
    st.sampled_from(sorted(FACTORS)),
    st.sampled_from(["", "r b", "b r"]),
    st.sampled_from([None, "reference"]),
)
def test_convolutions(data: st.DataObject, factors: str, bias: str, engine: str | None) -> None:
    groups, each, outputs = data.draw(st.sampled_from([(1, 3, 8), (1, 16, 16), (4, 4, 2), (16, 1, 1)]))
    size, stride, pad = (data.draw(st.integers(least, most)) for least, most in ((1, 3), (1, 2), (0, 1)))
    weights, scales, zero = data.draw(weights_of(groups * outputs, each, size, size, axis=0))
    x = np.random.default_rng(size).standard_normal((2, groups * each, 7, 6)).astype(np.float32)
    integers, scale = quantized(x)
    aligned = scales.reshape(-1, 1, 1) if scales.size > 1 else scales
    addend = np.linspace(-2, 2, groups * outputs, dtype=np.float32).reshape(1, -1, 1, 1)
    expected = convolve(integers, weights.astype(np.float64) - float(zero), groups, stride, pad) * scale * aligned
    product = node("ConvInteger", "q w z wz", "i", group=groups, strides=[stride] * 2, pads=[pad] * 4)
    constants = {"w": weights, "ws": aligned, "wz": zero, "b": addend}
    graph = lower(product, constants, x, expected.shape, factors, bias)
    is_integer = int(zero) == (128 if weights.dtype == np.uint8 else 0)
    kinds = {"dynamic_quantization", "convolution"} | (set() if is_integer else {"reorder"})
    assert {op.kind for op in graph.ops} == kinds
    assert_is_close(run(graph, x, engine), expected + addend if bias else expected)


@pytest.mark.parametrize("case", ["several zero points", "another zero point of the source", "a scale of rows"])
def test_products_of_another_form_stay_references(case: str) -> None:
    x, rng = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32), np.random.default_rng(2)
    weights = rng.integers(-9, 9, (8, 3)).astype(np.int8)
    constants: dict[str, Array] = {"w": weights, "ws": np.array(0.5, np.float32)}
    constants |= {"wz": np.array(0, np.int8), "k": np.array(7, np.uint8)}
    zeros, sources = np.zeros(3), "q w z wz"
    integers, scale = quantized(x)
    if case == "several zero points":
        constants["wz"] = zeros = np.array([1, 2, 3], np.int8)
    elif case == "a scale of rows":
        constants["ws"] = np.array([[1], [2], [3]], np.float32)
    else:
        sources = "q w k wz"
        integers = integers + np.rint(-min(x.min(), 0) / np.float32(scale)) - 7
    graph = lower(node("MatMulInteger", sources, "i"), constants, x, (3, 3), "usual", "")
    assert any(op.kind == "reference" for op in graph.ops)
    assert_is_close(run(graph, x, None), integers @ (weights - zeros) * scale * constants["ws"])


def test_products_of_one_tensor_share_its_quantization() -> None:
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantize")]
    for one in "ab":
        nodes += [node("MatMulInteger", "q w z", f"i{one}"), node("Cast", f"i{one}", f"c{one}", to=TensorProto.FLOAT)]
        nodes += [node("Mul", f"c{one} s", f"y{one}")]
    nodes.append(node("Sub", "ya yb", "y"))
    weights = numpy_helper.from_array(np.ones((8, 2), np.int8), "w")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in (("x", (3, 8)), ("y", (3, 2)))
    ]
    graph = helper.make_graph(nodes, "shared", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    lowered = lower_network(load_bound(model.SerializeToString()))
    assert [op.kind for op in lowered.ops].count("dynamic_quantization") == 1
    assert (run(lowered, x, None) == 0).all()
