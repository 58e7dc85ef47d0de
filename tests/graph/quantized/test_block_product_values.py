"""Values of products with weights in blocks, beside NumPy in f64 and ONNX Runtime's MatMulNBits."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from inlay.graph.costs import analytic
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan_graph
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.static_quantization import run_onnxruntime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.heavy


@dataclass(frozen=True, slots=True)
class NBits:
    """A MatMulNBits: its dims, the block, and inputs that may be left out."""

    rows: int
    """Rows of the source."""
    inner: int
    """K."""
    columns: int
    """N."""
    block: int = 32
    """Elements of K with one scale."""
    bits: int = 4
    """Bits of an element of the weights."""
    has_zero_points: bool = False
    """True if blocks have zero points of their own."""
    has_bias: bool = False
    """True if the result has a bias."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A model with one product, its source, and the exact result."""

    model: bytes
    """The ONNX file."""
    src: Array
    """The source, f32."""
    exact: npt.NDArray[np.float64]
    """The product in f64."""
    magnitude: npt.NDArray[np.float64]
    """Sum of the magnitudes of the terms of each element, to which rounding errors are relative."""


CASES = [
    *(NBits(rows, 256, 96) for rows in (1, 2, 3, 7, 8, 9, 17)),
    *(NBits(1, 256, 96, block, has_zero_points=True) for block in (16, 32, 64, 128)),
    *(NBits(rows, 128, columns, has_zero_points=True) for rows in (1, 5) for columns in (1, 7, 16, 65, 130)),
    *(NBits(rows, inner, 40, has_zero_points=True) for rows in (1, 4) for inner in (33, 40, 72, 100)),
    *(NBits(rows, 160, 48, has_zero_points=zeros, has_bias=True) for rows in (1, 6) for zeros in (False, True)),
    *(NBits(rows, 128, 65, bits=8, has_zero_points=zeros) for rows in (1, 6) for zeros in (False, True)),
]


def _pack(values: Array, bits: int) -> Array:
    """Integers along the last axis as bytes, the first of two in the lower half."""
    if bits == 8:
        return values
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    packed: Array = (even[..., 0::2] | even[..., 1::2] << 4).astype(np.uint8)
    return packed


def _sample(case: NBits) -> Sample:
    rng = np.random.default_rng(22)
    blocks, most = -(-case.inner // case.block), 1 << case.bits
    src = rng.standard_normal((case.rows, case.inner)).astype(np.float32)
    weights = rng.integers(0, most, (case.columns, blocks, case.block)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (case.columns, blocks)).astype(np.float32)
    zeros = np.full((case.columns, blocks), most // 2, np.uint8)
    arrays = {"w": _pack(weights, case.bits), "s": scales}
    if case.has_zero_points:
        zeros = rng.integers(0, most, zeros.shape).astype(np.uint8)
        arrays["z"] = _pack(zeros, case.bits)
    bias = rng.standard_normal(case.columns).astype(np.float32)
    if case.has_bias:
        arrays["b"] = bias
    real = (weights.astype(np.float64) - zeros[..., None]) * scales[..., None]
    matrix = real.reshape(case.columns, -1)[:, : case.inner].T
    added = bias.astype(np.float64) * case.has_bias
    size = np.abs(src).astype(np.float64) @ (weights * scales[..., None].astype(np.float64) + np.abs(real)).reshape(
        case.columns, -1
    )[:, : case.inner].T + np.abs(added)
    return Sample(_model(case, arrays), src, src.astype(np.float64) @ matrix + added, size)


def _model(case: NBits, arrays: dict[str, Array]) -> bytes:
    helper, float_type = onnx.helper, onnx.TensorProto.FLOAT
    names = ["x", "w", "s", "z" if "z" in arrays else "", "", "b" if "b" in arrays else ""]
    while not names[-1]:
        names.pop()
    attributes = {"K": case.inner, "N": case.columns, "bits": case.bits, "block_size": case.block}
    node = helper.make_node("MatMulNBits", names, ["y"], "product", domain="com.microsoft", **attributes)
    ends = [
        helper.make_tensor_value_info("x", float_type, [case.rows, case.inner]),
        helper.make_tensor_value_info("y", float_type, [case.rows, case.columns]),
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_product_with_weights_in_blocks_equals_the_product_in_f64(case: NBits) -> None:
    sample = _sample(case)
    graph = lower_network(load_bound(sample.model))
    plan = plan_graph(graph, analytic("avx512_core_vnni"))
    with ProgramSession(plan.program, graph) as session:
        found = session.run({"x": sample.src})["y"]
    assert (found.dtype, found.shape) == (np.dtype(np.float32), sample.exact.shape)
    assert np.max(np.abs(found - sample.exact) / sample.magnitude) <= 1e-6


@pytest.mark.parametrize("case", CASES, ids=str)
def test_onnxruntime_computes_the_same_product(case: NBits) -> None:
    """The f64 product reads the operator's inputs as ONNX Runtime does."""
    sample = _sample(case)
    found = run_onnxruntime(sample.model, {"x": sample.src})["y"]
    assert np.max(np.abs(found - sample.exact) / sample.magnitude) <= 1e-5
