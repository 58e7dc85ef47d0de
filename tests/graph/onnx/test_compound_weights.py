"""Constants in compound formats in place of those of a model, beside products with unpacked weights in f64."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.errors import InvalidArguments
from inlay.graph.lowering.translation import lower_network
from tests.support.refusals import raises_exactly

OUTPUTS, INPUTS = 96, 64
WEIGHTS = np.random.default_rng(0).standard_normal((OUTPUTS, INPUTS), np.float32)
SOURCE = np.random.default_rng(1).standard_normal((3, INPUTS), np.float32)


def model(operator: str, rows: int | str = 3) -> bytes:
    """Return a model with one product: MatMul by the transposed weights, or Gemm."""
    matrix = WEIGHTS if operator == "Gemm" else np.ascontiguousarray(WEIGHTS.T)
    attributes: Any = {"transB": 1} if operator == "Gemm" else {}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, INPUTS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, OUTPUTS])
    node = helper.make_node(operator, ["x", "W"], ["y"], name="product", **attributes)
    graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(matrix, "W")])
    text: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return text


def check_product(network: Any, weights: npt.NDArray[np.float32], costs: Any = "analytic") -> None:
    with inlay.compile(network, costs=costs) as session:
        found = session.run({"x": SOURCE})["y"]
    expected = SOURCE.astype(np.float64) @ weights.astype(np.float64).T
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
@pytest.mark.parametrize("name", ["ggml:Q4_0", "ggml:Q8_0", "ggml:Q4_1"])
def test_products_are_those_of_the_unpacked_weights(name: str, operator: str) -> None:
    memory = inlay.pack_compound(WEIGHTS, name)
    check_product(inlay.load(model(operator), weights={"W": memory}), memory.unpack())


@pytest.mark.parametrize("costs", ["analytic", "probed"])
@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def test_bytes_of_ggml_are_weights_as_ggml_reads_them(name: str, costs: str) -> None:
    gguf: Any = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[name]
    stored = gguf.quants.quantize(WEIGHTS, kind)
    desc = inlay.pack_compound(WEIGHTS, f"ggml:{name}").desc  # not its bytes
    memory = inlay.CompoundMemory(desc, np.ravel(stored))
    check_product(inlay.load(model("MatMul"), weights={"W": memory}), gguf.quants.dequantize(stored, kind), costs)


@pytest.mark.parametrize(("name", "stored"), [("ggml:Q4_0", "int4"), ("ggml:Q8_0", "int8"), ("ggml:Q4_1", "float32")])
def test_integers_of_blocks_with_one_scale_are_kept(name: str, stored: str) -> None:
    network: Any = inlay.load(model("MatMul"), weights={"W": inlay.pack_compound(WEIGHTS, name)})
    (product,) = (op for op in lower_network(network).ops if op.kind == "matmul")
    assert str(product.constants["weights"].dtype) == stored


def test_open_dims_and_other_dims_have_the_same_weights() -> None:
    memory = inlay.pack_compound(WEIGHTS, "ggml:Q4_0")
    opened: Any = inlay.load(model("MatMul", "rows"), weights={"W": memory})
    check_product(opened.bind(batch=3), memory.unpack())
    other: Any = inlay.load(model("MatMul", "rows"), batch=5, weights={"W": memory})
    check_product(other.again({"x": (3, INPUTS)}), memory.unpack())


def test_refused_weights() -> None:
    memory: Any = inlay.pack_compound(WEIGHTS, "ggml:Q4_0")
    short = inlay.pack_compound(WEIGHTS[:32], "ggml:Q4_0")
    refusals: list[tuple[Any, str]] = [
        ({"V": memory}, "weights name 'V', and the network has no such constant of f32: its matrices are W"),
        (
            {"W": WEIGHTS},
            "weights['W'] is a ndarray of shape (96, 64): give a CompoundMemory, as inlay.pack_compound returns",
        ),
        ({"W": short}, "weights['W'] has dims (32, 64), and the constant has (96, 64): pack those dims"),
        ([memory], "weights are a list: give a mapping of names to CompoundMemory"),
    ]
    for weights, text in refusals:
        with raises_exactly(InvalidArguments, text):
            inlay.load(model("Gemm"), weights=weights)
