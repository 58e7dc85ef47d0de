"""Batches of products of few rows, beside products in f64, with guard pages around all memory."""

from dataclasses import dataclass, replace
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay.row_batch import create_row_batch, requests_row_batch
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.costs.models import model_of_kind
from inlay.layout import Dims, Layout
from inlay.memory import Memory, pack
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, PrimitiveAttributes, SumPostOp
from inlay.primitives.engine import (
    Implementation,
    MachineCall,
    Operation,
    create_with_companions,
    get_engine,
)
from inlay.primitives.panel_weights import MOST_ROWS
from inlay.primitives.row_batches import MOST_REGISTERS, Features, find_features
from inlay.reordering.attributes import Scales
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

LANES = 16
"""A multiple of the floats of a register of each target."""
CLOSE = 1e-6
"""Largest difference, as a share of the sum of the magnitudes of all terms."""


@dataclass(frozen=True)
class Case:
    features: Features
    batch: Dims
    rows: int
    keys: int
    count: int = LANES
    order: Dims = ()
    """Order of all axes of the weights but that of the features, the outermost first; empty for row-major."""
    shared: tuple[bool, ...] = ()
    """Axes of the batch for which all products have the same weights."""
    gap: int = 0
    """Elements between rows of source and result, beyond those of a row."""
    post_ops: tuple[PostOp, ...] = ()
    threads: int = 2


def strided(dims: Dims, order: Dims, gap: int = 0) -> MemoryDesc:
    """Return f32 whose axes have this order in memory, with a gap after each run along the innermost one."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= dims[axis]
        step += gap if axis == order[-1] else 0
    return MemoryDesc(dims, "f32", strides=tuple(strides))


def operation(case: Case) -> Operation:
    """Return the batch of products."""
    ndims = len(case.batch) + 2
    inner, columns = (case.count, case.keys) if case.features == "summed" else (case.keys, case.count)
    batch = tuple(1 if one else n for n, one in zip(case.batch, case.shared or [False] * ndims, strict=False))
    axis = ndims - 2 if case.features == "summed" else ndims - 1
    others = case.order or tuple(one for one in range(ndims) if one != axis)
    line = tuple(range(ndims))
    descs = {
        "src": strided((*case.batch, case.rows, inner), line, case.gap),
        "weights": strided((*batch, inner, columns), (*others, axis)),
        "dst": strided((*case.batch, case.rows, columns), line, case.gap),
    }
    return Operation("matmul", "forward_inference", descs, {}, PrimitiveAttributes(post_ops=case.post_ops))


def check_products(case: Case, seed: int = 0, target: TargetMachine | None = None) -> None:
    """Compare the products in guarded memory with those in f64."""
    made = create_row_batch(operation(case), require_team(), case.threads, target)
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(desc.dims, np.float32) for name, desc in made.descs.items()}
    buffers = {name: GuardedBuffer(desc.size, align=4) for name, desc in made.descs.items()}
    memories = {name: Memory(desc, buffers[name].bytes) for name, desc in made.descs.items()}
    for name, desc in made.descs.items():
        memories[name].buffer[:] = pack(arrays[name], desc).buffer
    made.bind(memories)()
    expected, magnitude = expect(case, arrays)
    difference = np.abs(memories["dst"].unpack() - expected)
    assert np.max(difference / magnitude) < CLOSE
    assert all(buffer.gap_is_untouched for buffer in buffers.values())


def expect(case: Case, arrays: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the results in f64, and the sum of the magnitudes of all terms."""
    src, weights = (arrays[name].astype(np.float64) for name in ("src", "weights"))
    value, magnitude = src @ weights, np.abs(src) @ np.abs(weights) + 1
    for i, post_op in enumerate(case.post_ops):
        if isinstance(post_op, EltwisePostOp):
            value, magnitude = post_op.alpha * value + post_op.beta, magnitude * abs(post_op.alpha) + abs(post_op.beta)
            continue
        second = arrays[f"post_op_{i}_src_1"].astype(np.float64)
        is_factor = isinstance(post_op, BinaryPostOp) and post_op.algorithm == "mul"
        value = value * second if is_factor else value + second
        magnitude = magnitude * np.abs(second) + 1 if is_factor else magnitude + np.abs(second)
    return value, magnitude


@st.composite
def cases(draw: st.DrawFn) -> Case:
    features: Features = draw(st.sampled_from(("summed", "columns")))
    batch = draw(st.tuples(st.integers(1, 3)) | st.tuples(st.integers(1, 3), st.integers(1, 4)))
    rows, keys = draw(st.integers(1, MOST_ROWS)), draw(st.integers(1, 70))
    count = LANES * draw(st.sampled_from((1, 2, 4, 5, 8)))
    axes = [*range(len(batch)), len(batch) + (1 if features == "summed" else 0)]
    dims = (*batch, rows, keys if features == "summed" else count)
    operand = tuple(draw(st.sampled_from((1, n))) for n in dims)
    second = st.sampled_from(("add", "mul")).map(lambda name: BinaryPostOp(name, MemoryDesc(operand, "f32")))
    chain = st.lists(st.one_of(st.just(EltwisePostOp("linear", 0.125, 0.5)), second), max_size=2)
    return Case(
        features,
        batch,
        rows,
        keys,
        count,
        tuple(draw(st.permutations(axes))),
        tuple(draw(st.booleans()) for _ in batch),
        draw(st.integers(0, 3)),
        tuple(draw(chain)),
        draw(st.integers(1, 3)),
    )


@given(cases(), st.integers(0, 1000))
def test_results_are_those_of_products_in_f64(case: Case, seed: int) -> None:
    check_products(case, seed)


@pytest.mark.parametrize("features", ["summed", "columns"])
@pytest.mark.parametrize("keys", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("rows", [1, 5])
def test_code_for_narrower_registers(features: Features, keys: int, rows: int) -> None:
    if host_target().vector_bytes < 32 or not host_target().triple.startswith("x86_64"):
        pytest.skip("this processor has no AVX2")
    post_ops = (BinaryPostOp("add", MemoryDesc((1, 1, 1, keys if features == "summed" else 24), "f32")),)
    case = Case(features, (2, 3), rows, keys, 24, post_ops=post_ops)
    if host_target().vector_bytes == 32:
        check_products(case)
    else:
        with pytest.raises(Unimplemented):
            create_row_batch(operation(case), require_team(), 1)
    check_products(case, target=TARGETS["x86-64-v3"])


@pytest.mark.parametrize("features", ["summed", "columns"])
def test_each_thread_computes_its_share(features: Features) -> None:
    for heads in (1, 2, 5):
        for threads in (1, 2, 4):
            check_products(Case(features, (1, heads), 2, 300, 64, threads=threads))


@pytest.mark.parametrize("features", ["summed", "columns"])
def test_nan_and_infinity_stay_in_their_products(features: Features) -> None:
    case = Case(features, (2, 2), 1, 20, 32)
    made = create_row_batch(operation(case), require_team(), 2)
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal(desc.dims, np.float32) for name, desc in made.descs.items()}
    arrays["weights"][0, 1, 3, 4], arrays["src"][1, 0, 0, 2] = np.nan, np.inf
    memories = {name: pack(arrays[name], desc) for name, desc in made.descs.items()}
    made.bind(memories)()
    with np.errstate(invalid="ignore"):
        expected = arrays["src"].astype(np.float64) @ arrays["weights"].astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(memories["dst"].unpack()), np.isfinite(expected))


@pytest.mark.parametrize("features", ["summed", "columns"])
def test_offsets_and_strides_of_zero(features: Features) -> None:
    """All heads read the same keys, and one row of source and second operand stands for all sequences."""
    inner, columns = (32, 21) if features == "summed" else (21, 32)
    second = MemoryDesc.from_layout(Layout.from_strides((2, 3, 4, columns), (0, columns, 0, 1)), "f32", offset0=1)
    across = (700, 0, 1, 32) if features == "summed" else (700, 0, 32, 1)
    strides = {"src": (0, 4 * inner, inner, 1), "weights": across, "dst": (500, 150, columns, 1)}
    dims = {"src": (2, 3, 4, inner), "weights": (2, 3, inner, columns), "dst": (2, 3, 4, columns)}
    layouts = {name: Layout.from_strides(dims[name], strides[name]) for name in dims}
    descs = {name: MemoryDesc.from_layout(layout, "f32", offset0=3) for name, layout in layouts.items()}
    attributes = PrimitiveAttributes(post_ops=(BinaryPostOp("add", second),))
    made = create_row_batch(Operation("matmul", "forward_inference", descs, {}, attributes), require_team(), 2)
    rng, memories, arrays = np.random.default_rng(0), {}, {}
    for name, desc in made.descs.items():
        last = desc.offset0 + sum((n - 1) * step for n, step in zip(desc.dims, desc.strides, strict=True))
        buffer = GuardedBuffer(4 * (last + 1), align=4)
        memories[name], floats = Memory(desc, buffer.bytes), buffer.bytes.view(np.float32)
        floats[:] = rng.standard_normal(last + 1)
        arrays[name] = np.lib.stride_tricks.as_strided(
            floats[desc.offset0 :], desc.dims, [4 * step for step in desc.strides]
        ).astype(np.float64)
    made.bind(memories)()
    expected = arrays["src"] @ arrays["weights"] + arrays["post_op_0_src_1"]
    np.testing.assert_allclose(memories["dst"].unpack(), expected, rtol=0, atol=1e-4)


# The engine that is chosen


@pytest.mark.parametrize("features", ["summed", "columns"])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_own_code_computes_batches_of_few_rows(features: Features, order: Dims) -> None:
    require_team()
    axes = (0, 1, 3 if features == "summed" else 2)
    case = Case(features, (2, 3), 1, 40, 64, tuple(axes[i] for i in order))
    engine, made = create_with_companions(get_engine("onednn"), operation(case))
    assert (engine.name, made.impl, made.is_batched) == ("inlay", "matvec:batch", True)
    assert model_of_kind(operation(case), made.kernel_kind, "AVX2", made.impl).impl == "matvec"


def test_other_operations_are_those_of_the_library() -> None:
    case = Case("columns", (2, 3), 2, 40, 64)
    product = operation(case)
    descs = product.descs
    others = [
        operation(replace(case, rows=MOST_ROWS + 1)),
        operation(replace(case, count=64 + 4)),
        operation(replace(case, count=LANES * (MOST_REGISTERS + 1))),
        replace(product, descs={**descs, "weights": MemoryDesc(descs["weights"].dims, "f32", "any")}),
        replace(product, descs={**descs, "weights": MemoryDesc(descs["weights"].dims, "f32", "abcD16d")}),
        replace(product, descs={**descs, "src": MemoryDesc(descs["src"].dims, "f32", "abdc")}),
        replace(product, descs={name: MemoryDesc(desc.dims, "bf16", "abcd") for name, desc in descs.items()}),
        replace(product, descs={**descs, "bias": MemoryDesc((1, 1, 1, 64), "f32", "abcd")}),
        replace(product, kind="inner_product"),
    ]
    assert find_features(product) == "columns"
    assert [requests_row_batch(one) for one in others[:2]] == [False, False]
    assert [find_features(one, LANES) for one in others] == [None] * len(others)


def test_what_the_code_refuses_has_the_costs_of_the_library() -> None:
    require_team()
    product = operation(Case("columns", (2, 3), 1, 40, 64))
    refused = replace(product, attributes=PrimitiveAttributes(post_ops=(EltwisePostOp("elu", 1.0),)))
    library = get_engine("onednn")
    engine, made = create_with_companions(library, refused)
    assert (engine, made.impl) == (library, library.create(refused).impl)
    model = model_of_kind(refused, made.kernel_kind, "AVX2", made.impl)
    assert model.impl != model_of_kind(product, "jit", "AVX2", "matvec:batch").impl == "matvec"


def test_a_destination_of_any_is_row_major_and_batches_run_the_code() -> None:
    case = Case("summed", (1, 4), 1, 33, 64)
    product = operation(case)
    dst = product.descs["dst"]
    free = replace(product, descs={**product.descs, "dst": MemoryDesc(dst.dims, "f32", "any")})
    made: Implementation = create_row_batch(free, require_team(), 2)
    assert made.descs["dst"] == MemoryDesc(dst.dims, "f32")
    src, weights = (np.ones(made.descs[name].dims, np.float32) for name in ("src", "weights"))
    memories = {"src": pack(src, made.descs["src"]), "weights": pack(weights, made.descs["weights"])}
    call = made.bind(memories | {"dst": (result := Memory(made.descs["dst"]))})
    assert isinstance(call, MachineCall)
    engine = get_engine("onednn")
    for batch in engine.batch([call]) if engine.batches_machine_calls else ():
        batch.submit()
        assert np.all(result.unpack() == prod((64,)))


def test_refused_operations() -> None:
    case = Case("columns", (2,), 1, 10, 64)
    product = operation(case)

    def refuse(post_op: PostOp, text: str) -> None:
        attributes = PrimitiveAttributes(post_ops=(post_op,))
        with raises_exactly(Unimplemented, text):
            create_row_batch(replace(product, attributes=attributes), require_team(), 1)

    gelu = EltwisePostOp("elu", 1.0)
    refuse(gelu, f"a product of few rows has no post-operation {gelu}")
    refuse(SumPostOp(), "a batch of products of few rows adds nothing to its destination")
    column = BinaryPostOp("add", MemoryDesc((2, 1, 64), "bf16", "abc"))
    refuse(column, f"a product of few rows has no post-operation {column}")
    backward = Layout.from_strides((2, 1, 64), (-64, 64, 1))  # which oneDNN has no format for
    reversed_rows = BinaryPostOp("add", MemoryDesc.from_layout(backward, "f32", offset0=64))
    refuse(reversed_rows, f"a product of few rows has no post-operation {reversed_rows}")
    scaled = replace(product, attributes=PrimitiveAttributes(scales={"src": Scales()}))
    with raises_exactly(
        Unimplemented, "a batch of products of few rows has f32 with contiguous features, without scales"
    ):
        create_row_batch(scaled, require_team(), 1)


@pytest.mark.parametrize(
    ("name", "dims"), [("weights", (2, 9, 64)), ("weights", (3, 10, 64)), ("dst", (2, 1, 48)), ("src", (2, 2, 10))]
)
def test_dims_that_do_not_fit_are_refused(name: str, dims: Dims) -> None:
    """The machine code would read or write beyond a memory."""
    product = operation(Case("columns", (2,), 1, 10, 64))
    wrong = replace(product, descs={**product.descs, name: MemoryDesc(dims, "f32")})
    src, weights, dst = (wrong.descs[one].dims for one in ("src", "weights", "dst"))
    text = f"products of {src} and {weights} have no results {dst}: give dims that fit"
    with raises_exactly(InvalidArguments, text):
        create_row_batch(wrong, require_team(), 1)
