"""Products with weights of few bits in blocks, as models have them, beside ONNX Runtime and beside NumPy in f64."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.engines.inlay.matvec_rounding import can_round
from inlay.errors import InvalidArguments
from inlay.graph.costs import analytic
from inlay.graph.costs.estimates import Costs, KernelEstimate
from inlay.graph.lowering.translation import lower_network
from inlay.graph.op_graph import Op
from inlay.graph.passes.simplification import simplify_network
from inlay.graph.planner.dequantization import dequantize_unsupported
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.session import Session
from inlay.primitives.engine import Operation, get_engine
from inlay.reordering.target import host_target
from tests.support.graph_programs import plain_plan
from tests.support.refusals import raises_exactly

CLOSE = 2e-6
"""Largest difference, as a share of the largest result."""


def model(node: Any, src: tuple[int, ...], dst: tuple[int, ...], *before: Any, **constants: npt.NDArray[Any]) -> bytes:
    """Return a model of one node, and of nodes before it, with constants by name."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", src), ("y", dst))]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([*before, node], "blocks", ends[:1], ends[1:], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    text: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return text


def packed_product(
    src: tuple[int, ...],
    columns: int,
    block: int,
    bits: int = 4,
    zero_points: str = "",
    bias: bool = False,
    order: bool = False,
    level: int = 0,
) -> bytes:
    """Return a model with a MatMulNBits of random weights."""
    rng, inner = np.random.default_rng(7), src[-1]
    blocks = -(-inner // block)
    constants: dict[str, npt.NDArray[Any]] = {
        "B": rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        "scales": (rng.random(columns * blocks, np.float32) + np.float32(0.1)) * np.float32(0.1),
    }
    names = ["x", "B", "scales", "", "", ""]
    if zero_points == "integers":
        constants["zeros"] = rng.integers(0, 256, columns * -(-blocks * bits // 8), np.uint8)
    if zero_points == "numbers":
        constants["zeros"] = rng.random(columns * blocks, np.float32) * np.float32(15)
    if order:
        constants["order"] = (np.arange(blocks * block, dtype=np.int32) // block)[::-1].copy()
    if bias:
        constants["bias"] = rng.standard_normal(columns, np.float32)
    for place, name in ((3, "zeros"), (4, "order"), (5, "bias")):
        names[place] = name if name in constants else ""
    while not names[-1]:
        names.pop()
    attributes: dict[str, Any] = {"K": inner, "N": columns, "bits": bits, "block_size": block}
    if level:
        attributes["accuracy_level"] = level
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", name="n", **attributes)
    return model(node, src, (*src[:-1], columns), **constants)


def products(data: bytes, tmp_path: Path) -> tuple[Any, list[Op]]:
    """Return the network of a model, and its products once it is lowered."""
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    network: Any = inlay.load(path)
    graph = lower_network(simplify_network(network))
    return network, [op for op in graph.ops if op.kind in ("matmul", "inner_product")]


def run(network: Any, src: npt.NDArray[np.float32], engine: str | None = None) -> npt.NDArray[np.float32]:
    with inlay.compile(network, costs="analytic", engine=engine) as session:
        found: npt.NDArray[np.float32] = session.run({"x": src})["y"]
    return found


def sample(dims: tuple[int, ...]) -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal(dims, np.float32)


CASES: dict[str, dict[str, Any]] = {
    "one row": {"src": (1, 256), "columns": 96, "block": 32},
    "zero points": {"src": (1, 128), "columns": 40, "block": 16, "zero_points": "integers"},
    "an odd number of blocks": {"src": (3, 96), "columns": 33, "block": 32, "zero_points": "integers", "bias": True},
    "a last block that is shorter": {"src": (2, 200), "columns": 24, "block": 128},
    "groups of 4": {"src": (2, 100), "columns": 24, "block": 32, "zero_points": "integers"},
    "a stack of rows": {"src": (2, 3, 64), "columns": 50, "block": 64, "bias": True},
    "many rows": {"src": (37, 64), "columns": 48, "block": 32, "zero_points": "integers"},
    "8 bits": {"src": (1, 64), "columns": 48, "block": 32, "bits": 8, "zero_points": "integers"},
    "a zero point of 128": {"src": (4, 64), "columns": 48, "block": 32, "bits": 8},
    "zero points that are numbers": {"src": (1, 64), "columns": 16, "block": 32, "zero_points": "numbers"},
}


@pytest.mark.heavy
@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("name", CASES)
def test_packed_weights_beside_onnxruntime(name: str, engine: str | None, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    data = packed_product(**CASES[name])
    network, _ = products(data, tmp_path)
    src = sample(CASES[name]["src"])
    expected = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": src})[0]
    found = run(network, src, engine)
    assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()


@pytest.mark.heavy
def test_a_model_of_f16(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    proto = onnx.load_from_string(packed_product((2, 64), 24, 32, zero_points="integers", bias=True))
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    data, src = proto.SerializeToString(), sample((2, 64)).astype(np.float16)
    network, (product,) = products(data, tmp_path)
    assert product.constants["weights"].dtype == ml_dtypes.uint4
    expected = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": src})[0]
    with inlay.compile(network, costs="analytic") as session:
        found = session.run({"x": src})["y"]
    assert found.dtype == np.float16
    assert np.abs(found - expected).max() <= 2e-3 * np.abs(expected).max()


@pytest.mark.heavy
def test_a_source_without_rows_or_that_is_constant(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    network: Any = inlay.load(packed_product((0, 64), 24, 32, bias=True), batch=0)
    assert run(network, sample((0, 64))).shape == (0, 24)
    proto = onnx.load_from_string(packed_product((2, 64), 24, 32, bias=True))
    proto.graph.node[0].input[0] = "c"
    proto.graph.node[0].output[0] = "t"
    proto.graph.initializer.append(numpy_helper.from_array(sample((2, 64)), "c"))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 24
    proto.graph.node.append(helper.make_node("Add", ["t", "x"], ["y"], name="sum"))
    data = proto.SerializeToString()
    network, _ = products(data, tmp_path)
    src = sample((2, 24))
    expected = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": src})[0]
    assert np.abs(run(network, src) - expected).max() <= CLOSE * np.abs(expected).max()


def test_weights_stay_integers(tmp_path: Path) -> None:
    _, (plain,) = products(packed_product((1, 256), 96, 32), tmp_path)
    assert plain.constants["weights"].dtype == ml_dtypes.int4  # 8 is the zero point
    assert set(plain.constants) == {"weights", "weights_scales"}
    _, (shifted,) = products(packed_product((1, 256), 96, 32, zero_points="integers"), tmp_path)
    assert shifted.constants["weights"].dtype == ml_dtypes.uint4
    assert shifted.attributes.scales["weights"].groups == (32, 1)
    assert shifted.attributes.fpmath_integers
    _, (cut,) = products(packed_product((1, 200), 24, 128), tmp_path)
    assert cut.attributes.scales["weights"].groups == (8, 1)


def test_groups_without_a_kernel_are_computed_in_f32(tmp_path: Path) -> None:
    _, (product,) = products(packed_product((1, 100), 24, 32), tmp_path)
    assert product.constants["weights"].dtype == np.float32
    assert not product.attributes.fpmath_integers


@pytest.mark.parametrize("values", [{"zero_points": "numbers"}, {"order": True}])
def test_other_forms_are_left_to_onnxruntime(values: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    _, found = products(packed_product((1, 64), 16, 32, **values), tmp_path)
    assert not found


TYPES = {"int4": (ml_dtypes.int4, -8, 8), "uint4": (ml_dtypes.uint4, 0, 16), "int8": (np.int8, -128, 128)}


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Gemm of transposed weights"])
@pytest.mark.parametrize("type_name", TYPES)
def test_dequantized_weights_beside_numpy(type_name: str, operator: str, engine: str | None, tmp_path: Path) -> None:
    rng, (dtype, low, high) = np.random.default_rng(1), TYPES[type_name]
    weights, zeros = (rng.integers(low, high, dims).astype(dtype) for dims in ((64, 48), (4, 48)))
    scales, bias = rng.random((4, 48), np.float32), rng.standard_normal(48, np.float32)
    is_transposed = operator.endswith("weights")
    arrays = {"w": weights, "s": scales, "z": zeros}
    constants = {name: array.T.copy() if is_transposed else array for name, array in arrays.items()}
    dequantize = helper.make_node(
        "DequantizeLinear", ["w", "s", "z"], ["r"], name="d", axis=int(is_transposed), block_size=16
    )
    inputs = ["x", "r"] if operator == "MatMul" else ["x", "r", "bias"]
    attributes: Any = {"transB": 1} if is_transposed else {}
    node = helper.make_node(operator.split()[0], inputs, ["y"], name="n", **attributes)
    used = constants if operator == "MatMul" else constants | {"bias": bias}
    network, (product,) = products(model(node, (3, 64), (3, 48), dequantize, **used), tmp_path)
    assert product.constants["weights"].dtype == dtype
    src = sample((3, 64))
    real = (weights.astype(np.float64) - zeros.astype(np.float64).repeat(16, 0)) * scales.repeat(16, 0)
    expected = src.astype(np.float64) @ real + (0 if operator == "MatMul" else bias)
    assert np.abs(run(network, src, engine) - expected).max() <= CLOSE * np.abs(expected).max()


def test_a_saved_plan_has_the_integers(tmp_path: Path) -> None:
    network, _ = products(packed_product((1, 512), 256, 32, zero_points="integers"), tmp_path)
    src, path = sample((1, 512)), tmp_path / "plan.inlay"
    plan = inlay.plan(network, costs="analytic")
    plan.save(path)
    expected = run(network, src)
    with Session.load(path) as session:
        np.testing.assert_array_equal(session.run({"x": src})["y"], expected)
    assert path.stat().st_size < 512 * 256 * 2


def test_a_plan_takes_the_kernel_for_integers(tmp_path: Path) -> None:
    if get_engine("onednn").thread_team is None:
        pytest.skip("this oneDNN does not run on GNU OpenMP")
    network, _ = products(packed_product((1, 256), 96, 32), tmp_path)
    assert "matvec:s4" in str(inlay.plan(network, costs="probed"))


def test_a_model_may_allow_a_rounded_source(tmp_path: Path) -> None:
    for level in range(5):
        _, (product,) = products(packed_product((1, 256), 96, 32, level=level), tmp_path)
        assert product.attributes.rounds_source == (level == 4)


def test_a_plan_takes_the_kernel_for_a_rounded_source(tmp_path: Path) -> None:
    if get_engine("onednn").thread_team is None or not can_round(host_target()):
        pytest.skip("this oneDNN does not run on GNU OpenMP, or this processor has no VNNI")
    network, _ = products(packed_product((1, 256), 96, 32, level=4), tmp_path)
    plan = inlay.plan(network, costs="probed")
    assert "matvec:s4:rounded" in str(plan)
    src, path = sample((1, 256)), tmp_path / "plan.inlay"
    plan.save(path)
    with plan.compile() as session, Session.load(path) as loaded:
        found = session.run({"x": src})["y"]
        np.testing.assert_array_equal(loaded.run({"x": src})["y"], found)
    exact = run(network, src, "reference")
    assert 0 < np.abs(found - exact).max() <= ROUNDED * np.abs(exact).max()


ROUNDED = 0.02
"""Largest difference of a product whose source is rounded to 8 bits, as a share of the largest result."""


@pytest.mark.heavy
@pytest.mark.parametrize("zero_points", ["", "integers"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "block"), [(1, 768, 768, 32), (1, 1024, 100, 128), (4, 256, 96, 16)]
)
def test_a_rounded_source_is_as_exact_as_in_onnxruntime(
    rows: int, inner: int, columns: int, block: int, zero_points: str, tmp_path: Path
) -> None:
    """Mean errors beside f64: those of ONNX Runtime with the same attribute, which rounds in the same way."""
    runtime = pytest.importorskip("onnxruntime")
    data = packed_product((rows, inner), columns, block, zero_points=zero_points, level=4)
    network, (product,) = products(data, tmp_path)
    src = sample((rows, inner))
    weights = product.constants["weights"].astype(np.float64)
    if zero_points:
        weights -= product.constants["weights_zero_points"].reshape(-1, columns).repeat(block, 0)
    exact = src @ (weights * product.constants["weights_scales"].reshape(-1, columns).repeat(block, 0))
    peer = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": src})[0]
    with inlay.compile(network, costs="probed") as session:
        found = session.run({"x": src})["y"]
    assert np.abs(found - exact).mean() <= 1.05 * max(np.abs(peer - exact).mean(), CLOSE * np.abs(exact).max())


class ReferenceCosts:
    """Costs of an engine that has no kernel for integer weights but a reference one."""

    isa = "avx512_core_vnni"

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = analytic(self.isa).kernel(operation)
        is_mixed = operation.attributes.fpmath_integers
        return replace(found, impl="ref:any") if found is not None and is_mixed else found


@pytest.mark.parametrize("zero_points", ["", "integers"])
def test_weights_become_f32_for_an_engine_without_the_kernel(zero_points: str, tmp_path: Path) -> None:
    network, _ = products(packed_product((2, 128), 40, 32, zero_points=zero_points), tmp_path)
    graph, costs = lower_network(network), ReferenceCosts()
    changed = dequantize_unsupported(graph, cast(Costs, costs))
    (product,) = (op for op in changed.ops if op.kind == "matmul")
    assert product.constants["weights"].dtype == np.float32
    results = []
    for one in (graph, changed):
        with ProgramSession(plain_plan(one).program, one, engine="reference") as session:
            results.append(session.run({"x": sample((2, 128))})["y"])
    assert np.abs(results[0] - results[1]).max() <= CLOSE * np.abs(results[0]).max()


UNFITTING: dict[str, dict[str, Any]] = {
    "more rows": {"K": 64},
    "more columns": {"N": 64},
    "no columns": {"N": 0},
    "half as many bits in the file": {"bits": 8},
    "no block": {"block_size": 0},
    "a negative block": {"block_size": -16},
    "another block": {"block_size": 32},
    "a row that is no number": {"K": 32.0},
    "a short bias": {"bias": np.ones(2, np.float32)},
    "few scales": {"scales": np.ones(3, np.float32)},
    "few zero points": {"zeros": np.ones(2, np.uint8)},
}


@pytest.mark.parametrize("name", UNFITTING)
def test_attributes_that_do_not_fit_the_constants_are_refused(name: str) -> None:
    changes = UNFITTING[name]
    constants: dict[str, npt.NDArray[Any]] = {"B": np.ones((3, 2, 8), np.uint8), "scales": np.ones(6, np.float32)}
    constants |= {one: value for one, value in changes.items() if isinstance(value, np.ndarray)}
    attributes: dict[str, Any] = {"K": 32, "N": 3, "bits": 4, "block_size": 16}
    attributes |= {one: value for one, value in changes.items() if one in attributes}
    places = ["x", "B", "scales", "zeros" if "zeros" in constants else "", "", "bias" if "bias" in constants else ""]
    node = helper.make_node("MatMulNBits", places, ["y"], "n", domain="com.microsoft", **attributes)
    rows = attributes["K"] if isinstance(attributes["K"], int) else 32
    text = r"node 'n': MatMulNBits of com.microsoft does not accept float32 .*: correct the model, or give"
    with pytest.raises(InvalidArguments, match=text):
        inlay.load(model(node, (1, rows), (1, attributes["N"]), **constants))


@pytest.mark.parametrize(
    ("dims", "block", "has_zeros"),
    [((1, 8), 16, False), ((2, 4), 16, False), ((4, 8), 16, False), ((2, 8), 7, False), ((1, 8), 16, True)],
)
def test_scales_and_zero_points_of_other_blocks_are_refused(dims: tuple[int, ...], block: int, has_zeros: bool) -> None:
    constants: dict[str, npt.NDArray[Any]] = {"w": np.ones((32, 8), np.uint8), "s": np.ones(dims, np.float32)}
    if has_zeros:
        constants |= {"s": np.ones((2, 8), np.float32), "z": np.ones(dims, np.uint8)}
    dequantize = helper.make_node("DequantizeLinear", list(constants), ["d"], "dq", axis=0, block_size=block)
    network = inlay.load(model(helper.make_node("MatMul", ["x", "d"], ["y"]), (1, 32), (1, 8), dequantize, **constants))
    expected = f"node 'dq': DequantizeLinear: dims {dims} are not those of blocks of {block} along axis 0, "
    with raises_exactly(InvalidArguments, f"{expected}({-(-32 // block)}, 8)"):
        run(network, sample((1, 32)))
