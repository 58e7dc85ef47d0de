"""Functions of one tensor of integers as tables, beside ONNX Runtime; what is no such function stays as it is."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay.graph.costs import analytic
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan_graph
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.static_quantization import run_onnxruntime

DIMS = (2, 16, 8)


class Builder:
    """Nodes with a quantization after each."""

    def __init__(self, data_type: int = TensorProto.UINT8) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.dtype = helper.tensor_dtype_to_np_dtype(data_type)
        self.shift = 128 if data_type == TensorProto.INT8 else 0

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.constants[name] = np.asarray(value, dtype)
        return name

    def node(self, operator: str, inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs.split(), [name], name, **attributes))
        return name

    def requantized(self, name: str, scale: float, zero: int) -> str:
        """The tensor, quantized and dequantized."""
        ends = f"{self.constant(f'{name}_s', scale)} {self.constant(f'{name}_z', zero - self.shift, self.dtype)}"
        return self.node("DequantizeLinear", f"{self.node('QuantizeLinear', f'{name} {ends}')} {ends}")

    def model(self, y: str, dims: tuple[int, ...] = DIMS) -> bytes:
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, DIMS),
            helper.make_tensor_value_info(y, TensorProto.FLOAT, dims),
        ]
        arrays = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "functions", ends[:1], ends[1:], arrays)
        content: bytes = helper.make_model(
            graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]
        ).SerializeToString()
        return content


def gelu(build: Builder, x: str) -> str:
    """The operators of a GELU, each quantized."""
    scaled = build.requantized(build.node("Div", f"{x} {build.constant('root', 2**0.5)}"), 0.03, 120)
    erf = build.requantized(build.node("Erf", scaled), 1 / 127, 128)
    shifted = build.requantized(build.node("Add", f"{erf} {build.constant('one', [1.0])}"), 2 / 255, 0)
    product = build.requantized(build.node("Mul", f"{x} {shifted}"), 0.03, 9)
    return build.requantized(build.node("Mul", f"{product} {build.constant('half', 0.5)}"), 0.016, 11)


def swish(build: Builder, x: str) -> str:
    return build.requantized(build.node("Mul", f"{x} {build.node('Sigmoid', x)}"), 0.02, 14)


def square(build: Builder, x: str) -> str:
    return build.requantized(build.node("Mul", f"{x} {x}"), 0.05, 0)


def relu_of_square_root(build: Builder, x: str) -> str:
    return build.requantized(build.node("Relu", build.node("Sqrt", build.node("Abs", x))), 0.01, 3)


def kinds(network: Network) -> list[str]:
    return [node.operator for node in network.nodes]


def built(function: Any, data_type: int = TensorProto.UINT8) -> tuple[bytes, Network]:
    build = Builder(data_type)
    content = build.model(function(build, build.requantized("x", 0.03, 120)))
    return content, load_bound(content)


def run(network: Network, x: Array, engine: str | None) -> Array:
    graph = lower_network(network)
    plan = plan_graph(graph, analytic("avx512_core_vnni"))
    with ProgramSession(plan.program, graph, engine=engine) as session:
        return session.run({"x": x})[graph.outputs[0]]


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("data_type", [TensorProto.UINT8, TensorProto.INT8])
@pytest.mark.parametrize("function", [gelu, swish, square, relu_of_square_root])
def test_a_function_of_integers_is_one_table(function: Any, data_type: int, engine: str | None) -> None:
    pytest.importorskip("onnxruntime")
    content, network = built(function, data_type)
    assert kinds(network) == ["QuantizeLinear", "TableLookup", "DequantizeLinear"]
    x = np.random.default_rng(0).normal(0, 1.5, DIMS).astype(np.float32)
    (wanted,) = run_onnxruntime(content, {"x": x}, list(network.outputs)).values()
    found = run(network, x, engine)
    quantum = np.diff(np.unique(wanted)).min()
    assert np.abs(found - wanted).max() <= 1.001 * quantum
    assert np.mean(np.abs(found - wanted) > 0.5 * quantum) < 0.05


def test_a_table_that_changes_nothing_is_removed() -> None:
    def halved(build: Builder, x: str) -> str:
        return build.requantized(build.node("Div", f"{x} {build.constant('two', 2.0)}"), 0.015, 120)

    assert kinds(built(halved)[1]) == ["QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize("constant", [[[1.0], [2.0]] * 8, np.ones((3, 1, 1, 1))])
def test_constants_of_several_elements_and_other_dims_are_no_functions(constant: Any) -> None:
    build = Builder()
    x = build.requantized("x", 0.03, 120)
    product = build.node("Mul", f"{x} {build.constant('c', constant)}")
    dims = np.broadcast_shapes(DIMS, np.shape(constant))
    network = load_bound(build.model(build.requantized(product, 0.05, 128), dims))
    assert "TableLookup" not in kinds(network)


def test_functions_of_two_tensors_stay() -> None:
    build = Builder()
    x = build.requantized("x", 0.03, 120)
    other = build.requantized(build.node("Neg", "x"), 0.02, 7)
    network = load_bound(build.model(build.requantized(build.node("Mul", f"{x} {other}"), 0.05, 128)))
    assert "Mul" in kinds(network)
    assert "TableLookup" not in kinds(network)
