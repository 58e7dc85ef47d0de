"""Products of few rows with weights in panels, beside products in f64, with guard pages around all memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import erf, exp, pi, sqrt, tanh
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc, primitives
from inlay.engines.inlay.matvec import create_matvec
from inlay.errors import Unimplemented
from inlay.graph.runtime.compiling import Weights
from inlay.memory import Memory, pack
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import (
    Implementation,
    MachineCall,
    Operation,
    create_with_companions,
    get_engine,
)
from inlay.primitives.panel_weights import MOST_ROWS, has_panel_weights, panel_tag, panel_variant, with_any_weights
from inlay.reordering.attributes import Scales
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

DTYPES: Mapping[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
CLOSE: Mapping[str, float] = {"f32": 1e-6, "bf16": 2.0**-8}
"""Largest difference, as a share of the sum of the magnitudes of all terms."""
TYPES = (("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"))
"""Types of source and weights, and of the result."""
ALPHA, BETA = 0.25, 0.5

FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "relu": lambda x: x if x > 0 else ALPHA * x,
    "linear": lambda x: ALPHA * x + BETA,
    "logistic": lambda x: 1 / (1 + exp(-x)) if x > -700 else 0.0,
    "swish": lambda x: x / (1 + exp(-ALPHA * x)) if x > -700 else 0.0,
    "gelu_erf": lambda x: 0.5 * x * (1 + erf(x / sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))),
}


@dataclass(frozen=True)
class Case:
    rows: int
    inner: int
    columns: int
    kind: str = "matmul"
    types: tuple[str, str] = TYPES[0]
    post_ops: tuple[PostOp, ...] = ()
    has_bias: bool = False
    threads: int = 2
    row_gap: int = 0
    """Elements between rows of source and result, beyond those of a row."""
    scale: float = 1.0
    """Factor of the source."""


def operation(case: Case) -> Operation:
    """Return the product, with weights of format `any`."""
    data_type, result = case.types
    src, dst = (
        MemoryDesc((case.rows, width), one, strides=(width + case.row_gap, 1))
        for width, one in ((case.inner, data_type), (case.columns, result))
    )
    dims = (case.inner, case.columns) if case.kind == "matmul" else (case.columns, case.inner)
    descs = {"src": src, "weights": MemoryDesc(dims, data_type, "any"), "dst": dst}
    if case.has_bias:
        bias = (1, case.columns) if case.kind == "matmul" else (case.columns,)
        descs["bias"] = MemoryDesc(bias, "f32", "any")
    return Operation(case.kind, "forward_inference", descs, {}, PrimitiveAttributes(post_ops=case.post_ops))


def random_arrays(made: Implementation, scale: float, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return random elements for each argument."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(desc.dims) for name, desc in made.descs.items()}
    arrays["src"] *= scale
    return {name: array.astype(DTYPES[str(made.descs[name].data_type)]) for name, array in arrays.items()}


def apply(
    case: Case, arrays: Mapping[str, npt.NDArray[Any]], value: npt.NDArray[Any], magnitude: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the results of the post-operations in f64, and the sum of the magnitudes of all terms."""
    for i, post_op in enumerate(case.post_ops):
        if isinstance(post_op, EltwisePostOp):
            value = np.vectorize(FUNCTIONS[post_op.algorithm])(value)
            magnitude = magnitude + 1
            continue
        name = f"post_op_{i}_src_1" if isinstance(post_op, BinaryPostOp) else "dst"
        second = arrays[name].astype(np.float64)
        if isinstance(post_op, BinaryPostOp) and post_op.algorithm == "mul":
            value, magnitude = value * second, magnitude * np.abs(second)
        else:
            value, magnitude = value + second, magnitude + np.abs(second)
    return value, magnitude


def check_product(case: Case, seed: int = 5, target: TargetMachine | None = None) -> None:
    """Compare a product in guarded memory with one in f64."""
    made = create_matvec(operation(case), require_team(), case.threads, target)
    arrays = random_arrays(made, case.scale, seed)
    memories: dict[str, Memory] = {}
    buffers: list[GuardedBuffer] = []
    for name, desc in made.descs.items():
        buffer = GuardedBuffer(desc.size, align=4)
        memories[name] = Memory(desc, buffer.bytes)
        buffers.append(buffer)
        memories[name].buffer[:] = pack(arrays[name], desc).buffer
    made.bind(memories)()
    src, weights = arrays["src"].astype(np.float64), arrays["weights"].astype(np.float64)
    weights = weights if case.kind == "matmul" else weights.T
    bias = arrays["bias"].astype(np.float64) if case.has_bias else np.zeros(1)
    magnitude = np.abs(src) @ np.abs(weights) + np.abs(bias) + 1
    expected, magnitude = apply(case, arrays, src @ weights + bias, magnitude)
    difference = np.abs(memories["dst"].unpack().astype(np.float64) - expected)
    assert np.max(difference / magnitude) < CLOSE[case.types[1]]
    assert all(buffer.gap_is_untouched for buffer in buffers)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, columns = draw(st.integers(1, 2 * MOST_ROWS + 3)), draw(st.integers(1, 200))
    types = draw(st.sampled_from(TYPES))
    second = st.sampled_from(
        [
            BinaryPostOp("add", MemoryDesc((rows, columns), types[1], "ab")),
            BinaryPostOp("add", MemoryDesc((rows, columns), "f32", strides=(columns + 3, 1))),
            BinaryPostOp("mul", MemoryDesc((1, columns), "bf16", "ab")),
            SumPostOp(),
        ]
    )
    function = st.sampled_from([EltwisePostOp(name, ALPHA, BETA) for name in FUNCTIONS])
    return Case(
        rows,
        8 * draw(st.integers(1, 20)),
        columns,
        draw(st.sampled_from(("matmul", "inner_product"))),
        types,
        tuple(draw(st.lists(st.one_of(function, second), max_size=2))),
        draw(st.booleans()),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 3)),
        draw(st.sampled_from((0.1, 1.0, 10.0))),
    )


@given(cases(), st.integers(0, 1000))
def test_results_are_those_of_a_product_in_f64(case: Case, seed: int) -> None:
    check_product(case, seed)


@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("types", TYPES)
def test_code_for_narrower_registers(types: tuple[str, str], function: str, rows: int) -> None:
    if host_target().vector_bytes < 32 or not host_target().triple.startswith("x86_64"):
        pytest.skip("this processor has no AVX2")
    post_ops = (EltwisePostOp(function, ALPHA, BETA), SumPostOp())
    check_product(Case(rows, 64, 70, types=types, post_ops=post_ops), target=TARGETS["x86-64-v3"])


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("types", TYPES)
def test_functions_propagate_nan(types: tuple[str, str], function: str) -> None:
    made = create_matvec(operation(Case(2, 8, 20, types=types, post_ops=(EltwisePostOp(function),))), require_team(), 2)
    arrays = random_arrays(made, 1.0, 3)
    arrays["src"][1, 3] = np.nan
    memories = {name: pack(arrays[name], desc) for name, desc in made.descs.items()}
    made.bind(memories)()
    result = memories["dst"].unpack().astype(np.float32)
    assert np.isfinite(result[0]).all()
    assert np.isnan(result[1]).all()


INFINITE: Mapping[str, tuple[EltwisePostOp, float, float]] = {
    "relu": (EltwisePostOp("relu"), 0.0, np.inf),
    "leaky relu": (EltwisePostOp("relu", 0.5), -np.inf, np.inf),
    "logistic": (EltwisePostOp("logistic"), 0.0, 1.0),
    "swish": (EltwisePostOp("swish", 1.0), np.nan, np.inf),
    "gelu_erf": (EltwisePostOp("gelu_erf"), np.nan, np.inf),
    "gelu_tanh": (EltwisePostOp("gelu_tanh"), np.nan, np.inf),
}
"""Functions, and their results for minus and plus infinity: products of infinity by 0 are NaN."""


@pytest.mark.parametrize("name", INFINITE)
@pytest.mark.parametrize("types", TYPES)
def test_functions_of_infinity(types: tuple[str, str], name: str) -> None:
    function, *expected = INFINITE[name]
    made = create_matvec(operation(Case(3, 8, 20, types=types, post_ops=(function,))), require_team(), 2)
    arrays = random_arrays(made, 1.0, 3)
    arrays["weights"] = np.abs(arrays["weights"]) + 1
    arrays["src"][:2, 3] = -np.inf, np.inf
    memories = {name: pack(arrays[name], desc) for name, desc in made.descs.items()}
    made.bind(memories)()
    result = memories["dst"].unpack().astype(np.float32)
    np.testing.assert_array_equal(result[:2], np.array([[one] * 20 for one in expected], np.float32))
    assert np.isfinite(result[2]).all()


# The format, and the engine that is chosen


def test_an_operation_with_panels_is_computed_by_own_code() -> None:
    require_team()
    product = operation(Case(1, 64, 100))
    panels = panel_variant(product)
    assert panels is not None
    assert has_panel_weights(panels)
    assert with_any_weights(panels) == product
    assert panel_variant(panels) is None
    engine, made = create_with_companions(get_engine("onednn"), panels)
    assert (engine.name, made.impl, made.is_batched) == ("inlay", "matvec:f32", True)
    assert create_with_companions(get_engine("onednn"), product)[0].name.startswith("onednn")


@pytest.mark.parametrize("kind", ["matmul", "inner_product"])
@pytest.mark.parametrize("data_type", ["f32", "bf16"])
def test_panels_share_the_bytes_of_the_format_of_onednn(data_type: str, kind: str) -> None:
    """If the rows fill its blocks; so weights are stored once for few rows and for many."""
    dims = (64, 100) if kind == "matmul" else (100, 64)
    plain = {("matmul", "f32"): "BA16a64b", ("matmul", "bf16"): "BA16a64b2a"}
    tags = {**plain, ("inner_product", "f32"): "AB16b64a", ("inner_product", "bf16"): "AB16b64a2b"}
    weights, array = Weights(), np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    first = weights.get_packed(array, MemoryDesc(dims, data_type, tags[kind, data_type]))
    nbytes = weights.nbytes
    second = weights.get_packed(array, MemoryDesc(dims, data_type, panel_tag(kind, data_type, 64)))
    assert second.desc != first.desc
    assert (second.address, weights.nbytes) == (first.address, nbytes)
    np.testing.assert_array_equal(second.unpack(), first.unpack())


def test_operations_without_panels() -> None:
    many, few = operation(Case(MOST_ROWS + 1, 64, 100)), operation(Case(MOST_ROWS, 64, 100))
    assert panel_variant(many) is None
    assert panel_variant(few) is not None
    assert panel_variant(replace(few, prop_kind="backward_data")) is None
    assert panel_variant(replace(few, kind="convolution")) is None
    half = {name: MemoryDesc(desc.dims, "f16", desc.tag or "any") for name, desc in few.descs.items()}
    assert panel_variant(replace(few, descs=half)) is None
    assert not has_panel_weights(few)


def test_panels_with_attributes_that_the_code_lacks_are_computed_by_others() -> None:
    require_team()
    tag = panel_tag("matmul", "f32", host_target().vector_bytes)
    src, weights = MemoryDesc((2, 8), "f32", "ab"), MemoryDesc((8, 5), "f32", tag)
    product = primitives.MatMul(src, weights, attributes=PrimitiveAttributes(scales={"src": Scales()}))
    assert product.engine.name != "inlay"


def test_calls_run_alone_and_in_batches() -> None:
    require_team()
    engine = get_engine("onednn")
    made = create_matvec(operation(Case(2, 64, 10)), require_team(), 2)
    sets = []
    for seed in range(3):
        arrays = random_arrays(made, 1.0, seed)
        sets.append({name: pack(arrays[name], desc) for name, desc in made.descs.items()})
    calls = [made.bind(memories) for memories in sets]
    expected = []
    for call, memories in zip(calls, sets, strict=True):
        assert isinstance(call, MachineCall)
        call()
        expected.append(memories["dst"].unpack())
        memories["dst"].buffer[:] = 0
    if not engine.batches_machine_calls:
        return
    (batch,) = engine.batch(calls[:2])
    batch.submit()
    batch.put(1, calls[2])
    batch.submit()
    for memories, result in zip(sets, expected, strict=True):
        np.testing.assert_array_equal(memories["dst"].unpack(), result)


def test_refused_operations() -> None:
    start = "a product of few rows has "

    def refuse(wrong: Operation, text: str) -> None:
        with raises_exactly(Unimplemented, start + text):
            create_matvec(wrong, require_team(), 2)

    product = operation(Case(2, 64, 100))
    refuse(operation(Case(2, 60, 100)), "weights with a multiple of 8 rows, floats without scales")
    elu = EltwisePostOp("elu", 1.0)
    refuse(operation(Case(2, 64, 100, post_ops=(elu,))), f"no post-operation {elu}")
    column = BinaryPostOp("add", MemoryDesc((2, 1), "f32", "ab"))
    refuse(operation(Case(2, 64, 100, post_ops=(column,))), f"no post-operation {column}")
    third = (BinaryPostOp("add", MemoryDesc((2, 100), "f32", "ab")),) * 3
    refuse(operation(Case(2, 64, 100, post_ops=third)), "at most 2 second operands")
    wide = {**product.descs, "src": MemoryDesc((2, 64), "bf16", "ab")}
    refuse(replace(product, descs=wide), "no bf16 by f32 to f32")
    bias = {**product.descs, "bias": MemoryDesc((2, 100), "f32", "ab")}
    refuse(replace(product, descs=bias), "a bias of f32 with one row")
