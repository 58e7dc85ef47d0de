"""Products of f32 with integers of 4 and 8 bits beside products in f64, with guard pages around all memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay.matvec import create_matvec, requests_matvec
from inlay.engines.inlay.matvec_code import weights_tag
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Operation
from inlay.primitives.panel_weights import MOST_ROWS
from inlay.reordering.attributes import Scales, ZeroPoints
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.refusals import raises_exactly
from tests.support.thread_teams import require_team

TYPES: Mapping[str, tuple[Any, int, int]] = {
    "s4": (ml_dtypes.int4, -8, 7),
    "u4": (ml_dtypes.uint4, 0, 15),
    "s8": (np.int8, -128, 127),
    "u8": (np.uint8, 0, 255),
}
CLOSE = 1e-6
"""Largest difference, as a share of the sum of the magnitudes of the products."""


@dataclass(frozen=True)
class Case:
    rows: int
    inner: int
    columns: int
    group: int
    weights: str = "s4"
    has_zero_points: bool = False
    has_bias: bool = False
    threads: int = 2
    row_gap: int = 0
    """Elements between rows of source and result, beyond those of a row."""


def operation(case: Case) -> Operation:
    """Return the product; source and destination have gaps between rows."""
    groups = (case.group, 1)
    attributes = PrimitiveAttributes(
        scales={"weights": Scales(mask=3, groups=groups)},
        zero_points={"weights": ZeroPoints(mask=3, groups=groups)} if case.has_zero_points else {},
        fpmath_integers=True,
    )
    src, dst = (
        MemoryDesc((case.rows, width), "f32", strides=(width + case.row_gap, 1)) for width in (case.inner, case.columns)
    )
    descs = {"src": src, "weights": MemoryDesc((case.inner, case.columns), case.weights, "any"), "dst": dst}
    if case.has_bias:
        descs["bias"] = MemoryDesc((1, case.columns), "f32", "ab")
    return Operation("matmul", "forward_inference", descs, {}, attributes)


def random_arrays(case: Case, seed: int = 5) -> dict[str, npt.NDArray[Any]]:
    """Return the arguments; scales have both signs."""
    rng = np.random.default_rng(seed)
    dtype, low, high = TYPES[case.weights]
    values = (case.inner // case.group, case.columns)
    return {
        "src": rng.standard_normal((case.rows, case.inner), np.float32),
        "weights": rng.integers(low, high + 1, (case.inner, case.columns)).astype(dtype),
        "weights_scales": (rng.random(values, np.float32) - np.float32(0.3)),
        "weights_zero_points": rng.integers(low, high + 1, values).astype(np.int32),
        "bias": rng.standard_normal((1, case.columns), np.float32),
    }


def check_product(case: Case, seed: int = 5, target: TargetMachine | None = None) -> None:
    """Compare a product in guarded memory with one in f64; the result is filled with NaN before."""
    made = create_matvec(operation(case), require_team(), case.threads, target)
    arrays = random_arrays(case, seed)
    memories: dict[str, Memory] = {}
    buffers: list[GuardedBuffer] = []
    for name, desc in made.descs.items():
        buffer = GuardedBuffer(desc.size, align=4)
        memories[name] = Memory(desc, buffer.bytes)
        buffers.append(buffer)
        if name in arrays:
            memories[name].buffer[:] = pack(arrays[name].reshape(desc.dims), desc).buffer
    memories["dst"].buffer.view(np.float32)[:] = np.nan
    made.bind(memories)()
    weights = arrays["weights"].astype(np.float64)
    if case.has_zero_points:
        weights -= arrays["weights_zero_points"].repeat(case.group, 0)
    weights *= arrays["weights_scales"].astype(np.float64).repeat(case.group, 0)
    expected = arrays["src"].astype(np.float64) @ weights + (arrays["bias"] if case.has_bias else 0)
    magnitude = np.abs(arrays["src"]).astype(np.float64) @ np.abs(weights) + 1
    assert np.max(np.abs(memories["dst"].unpack() - expected) / magnitude) < CLOSE
    assert all(buffer.gap_is_untouched for buffer in buffers)
    if case.row_gap and case.rows > 1:
        line = memories["dst"].buffer.view(np.float32)
        assert np.isnan(line[case.columns : case.columns + case.row_gap]).all()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    group = 8 * draw(st.integers(1, 8))
    return Case(
        rows=draw(st.integers(1, 2 * MOST_ROWS + 3)),
        inner=group * draw(st.integers(1, 4)),
        columns=draw(st.integers(1, 200)),
        group=group,
        weights=draw(st.sampled_from(tuple(TYPES))),
        has_zero_points=draw(st.booleans()),
        has_bias=draw(st.booleans()),
        threads=draw(st.integers(1, 3)),
        row_gap=draw(st.integers(0, 3)),
    )


@given(cases(), st.integers(0, 1000))
def test_results_are_those_of_a_product_in_f64(case: Case, seed: int) -> None:
    check_product(case, seed)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("weights", TYPES)
def test_code_for_narrower_registers(weights: str, rows: int) -> None:
    if host_target().vector_bytes < 32 or not host_target().triple.startswith("x86_64"):
        pytest.skip("this processor has no AVX2")
    for has_zero_points in (False, True):
        check_product(Case(rows, 64, 70, 16, weights, has_zero_points), target=TARGETS["x86-64-v3"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_stay_in_their_row(value: float) -> None:
    case = Case(3, 32, 40, 16)
    made, arrays = create_matvec(operation(case), require_team(), 2), random_arrays(case)
    arrays["src"][1, 7] = value
    memories = {name: pack(arrays[name].reshape(desc.dims), desc) for name, desc in made.descs.items() if name != "dst"}
    memories["dst"] = Memory(made.descs["dst"])
    made.bind(memories)()
    is_finite = np.isfinite(memories["dst"].unpack())
    assert is_finite[[0, 2]].all()
    assert not is_finite[1, arrays["weights"][7] != 0].any()


def test_weights_are_panels_of_columns() -> None:
    made = create_matvec(operation(Case(1, 64, 100, 32)), require_team(), 2)
    columns = host_target().vector_bytes
    assert made.descs["weights"] == MemoryDesc((64, 100), "s4", weights_tag("s4", columns))
    assert made.impl == "matvec:s4"


def test_operations_that_others_compute() -> None:
    product = operation(Case(1, 64, 100, 32))
    assert requests_matvec(product)
    assert not requests_matvec(replace(product, attributes=PrimitiveAttributes()))
    assert not requests_matvec(replace(product, prop_kind="backward_data"))
    real = {**product.descs, "weights": MemoryDesc((64, 100), "f32", "any")}
    assert not requests_matvec(replace(product, descs=real))


def test_refused_operations() -> None:
    product = operation(Case(1, 64, 100, 32))
    start = "a product of few rows has "

    def refuse(wrong: Operation, text: str) -> None:
        with raises_exactly(Unimplemented, start + text):
            create_matvec(wrong, require_team(), 2)

    narrow = {name: MemoryDesc(desc.dims, "bf16", "ab") for name, desc in product.descs.items() if name == "dst"}
    refuse(replace(product, descs={**product.descs, **narrow}), "no f32 by s4 to bf16")
    column_major = MemoryDesc((1, 64), "f32", "BA8b4a")
    refuse(replace(product, descs={**product.descs, "src": column_major}), f"no src {column_major}: give row-major ab")
    weights = MemoryDesc((64, 100), "s4", "ab")
    refuse(replace(product, descs={**product.descs, "weights": weights}), f"no weights {weights}: leave them any")
    source = replace(product.attributes, scales={**product.attributes.scales, "src": Scales()})
    refuse(replace(product, attributes=source), "scales and zero points of integer weights in groups")
    refuse(operation(Case(1, 60, 100, 20)), "groups of multiples of 8 rows")


@pytest.mark.parametrize(("name", "dims"), [("weights", (8, 40)), ("weights", (16, 8)), ("dst", (2, 40))])
def test_dims_that_do_not_fit_are_refused(name: str, dims: tuple[int, int]) -> None:
    """The machine code would read or write beyond a memory."""
    whole = operation(Case(1, 16, 40, 8))
    desc = MemoryDesc(dims, whole.descs[name].data_type, "any")
    wrong = replace(whole, descs={**whole.descs, name: desc})
    src, weights, dst = (wrong.descs[one].dims for one in ("src", "weights", "dst"))
    with raises_exactly(InvalidArguments, f"a product of {src} and {weights} has no result {dst}: give dims that fit"):
        create_matvec(wrong, require_team(), 1)
