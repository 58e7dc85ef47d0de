"""Products of few rows whose source is rounded to 8 bits, beside NumPy's statement of the rounding."""

from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.engines.inlay.matvec import create_matvec
from inlay.engines.inlay.matvec_code import MatvecCode, MatvecWord, build_module
from inlay.engines.inlay.matvec_rounding import MOST_GROUP, can_round
from inlay.engines.inlay.winograd_code import Registers
from inlay.memory import Memory, pack
from inlay.primitives.engine import MachineCall, Operation
from inlay.primitives.panel_weights import MOST_ROWS
from inlay.reordering.target import TARGETS, TargetMachine, host_target
from tests.engines.inlay.test_matvec import Case, operation, random_arrays
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.thread_teams import require_team

ULPS = 2.0**-21
"""Largest difference, as a share of the sum of the magnitudes of the groups' products."""

Real = npt.NDArray[np.float64]


def rounding_operation(case: Case) -> Operation:
    product = operation(case)
    return replace(product, attributes=replace(product.attributes, rounds_source=True))


def require_vnni() -> None:
    if not can_round(host_target()):
        pytest.skip("this processor has no VNNI")


def rounded_product(case: Case, arrays: dict[str, npt.NDArray[np.generic]]) -> tuple[Real, Real]:
    """Return the product of the rounded source and the weights in f64, and the sum of the magnitudes of its terms."""
    src = np.asarray(arrays["src"], np.float32).reshape(case.rows, -1, case.group)
    scales = np.abs(src).max(2, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)
    rounded = np.rint(src * inverse).astype(np.float64)
    zeros = np.asarray(arrays["weights_zero_points"], np.float64)[:, None] if case.has_zero_points else 0.0
    weights = np.asarray(arrays["weights"]).astype(np.float64).reshape(-1, case.group, case.columns)
    products = np.einsum("mgk,gkn->mgn", rounded, weights - zeros)
    terms = np.einsum("mgk,gkn->mgn", np.abs(rounded), np.abs(weights) + np.abs(zeros))
    factors = scales.astype(np.float64) * np.asarray(arrays["weights_scales"], np.float64)
    bias = np.asarray(arrays["bias"], np.float64) if case.has_bias else np.zeros((1, case.columns))
    return (products * factors).sum(1) + bias, (terms * np.abs(factors)).sum(1) + np.abs(bias)


def run_guarded(
    case: Case, arrays: dict[str, npt.NDArray[np.generic]], target: TargetMachine | None = None
) -> npt.NDArray[np.float32]:
    """Return the product that is computed in guarded memory; the result is filled with NaN before."""
    made = create_matvec(rounding_operation(case), require_team(), case.threads, target)
    assert made.impl == f"matvec:{case.weights}:rounded"
    memories: dict[str, Memory] = {}
    buffers: list[GuardedBuffer] = []
    for number, (name, desc) in enumerate(made.descs.items()):
        buffer = GuardedBuffer(desc.size, "lower" if number % 2 else "upper", align=4)
        memories[name] = Memory(desc, buffer.bytes)
        buffers.append(buffer)
        if name in arrays:
            memories[name].buffer[:] = pack(arrays[name].reshape(desc.dims), desc).buffer
    memories["dst"].buffer.view(np.float32)[:] = np.nan
    call = made.bind(memories)
    assert isinstance(call, MachineCall)
    table = call.owner[0]  # type: ignore[index]
    rounded = GuardedBuffer(case.threads * int(table[MatvecWord.ROUNDED_STRIDE]))
    buffers.append(rounded)
    table[MatvecWord.ROUNDED] = rounded.address
    call()
    first = memories["dst"].unpack()
    call()
    np.testing.assert_array_equal(memories["dst"].unpack(), first)
    assert all(buffer.gap_is_untouched for buffer in buffers)
    if case.row_gap and case.rows > 1:
        line = memories["dst"].buffer.view(np.float32)
        assert np.isnan(line[case.columns : case.columns + case.row_gap]).all()
    return first


def check_product(case: Case, seed: int = 5, target: TargetMachine | None = None) -> None:
    arrays = random_arrays(case, seed)
    expected, magnitude = rounded_product(case, arrays)
    found = run_guarded(case, arrays, target)
    assert np.max(np.abs(found - expected) / (magnitude + 1e-30)) < ULPS


@st.composite
def cases(draw: st.DrawFn) -> Case:
    group = 8 * draw(st.integers(1, 8))
    return Case(
        rows=draw(st.integers(1, MOST_ROWS)),
        inner=group * draw(st.integers(1, 4)),
        columns=draw(st.integers(1, 200)),
        group=group,
        weights=draw(st.sampled_from(("s4", "u4"))),
        has_zero_points=draw(st.booleans()),
        has_bias=draw(st.booleans()),
        threads=draw(st.integers(1, 3)),
        row_gap=draw(st.integers(0, 3)),
    )


@given(cases(), st.integers(0, 1000))
def test_results_are_those_of_the_rounded_source(case: Case, seed: int) -> None:
    require_vnni()
    check_product(case, seed)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("weights", ["s4", "u4"])
def test_code_for_narrower_registers(weights: str, rows: int) -> None:
    require_vnni()
    target = replace(host_target(), vector_bytes=32)
    for has_zero_points in (False, True):
        check_product(Case(rows, 64, 70, 16, weights, has_zero_points), target=target)


def test_groups_of_zeros_and_of_subnormal_numbers() -> None:
    require_vnni()
    case = Case(2, 96, 40, 32, "u4", has_zero_points=True)
    arrays = random_arrays(case)
    arrays["src"][0] = 0
    arrays["src"][1, :32] = 0
    arrays["src"][1, 32:64] *= np.float32(1e-39)
    found = run_guarded(case, arrays)
    assert (found[0] == 0).all()
    expected, _ = rounded_product(case, {**arrays, "src": np.where(np.abs(arrays["src"]) < 1e-30, 0, arrays["src"])})
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_make_their_row_nan(value: float) -> None:
    require_vnni()
    case = Case(3, 64, 40, 16)
    arrays = random_arrays(case)
    arrays["src"][1, 7] = value
    found = run_guarded(case, arrays)
    assert np.isfinite(found[[0, 2]]).all()
    assert np.isnan(found[1]).all()


def test_products_that_are_not_rounded() -> None:
    """Many rows, integers of 8 bits, groups whose sums may overflow, and processors without VNNI: the exact product."""

    def impl(case: Case, target: TargetMachine | None = None) -> str:
        return create_matvec(rounding_operation(case), require_team(), 2, target).impl

    assert impl(Case(MOST_ROWS + 1, 64, 40, 16)) == "matvec:s4"
    assert impl(Case(1, 64, 40, 16, "s8")) == "matvec:s8"
    assert impl(Case(1, MOST_GROUP + 8, 40, MOST_GROUP + 8)) == "matvec:s4"
    for name in ("x86-64-v3", "x86-64-v4"):
        assert impl(Case(1, 64, 40, 16), TARGETS[name]) == "matvec:s4"


def test_weights_have_one_format_for_all_rows() -> None:
    few, many = (create_matvec(rounding_operation(Case(rows, 64, 40, 16)), require_team(), 2) for rows in (1, 100))
    assert few.descs["weights"] == many.descs["weights"] == MemoryDesc((64, 40), "s4", few.descs["weights"].tag)


@pytest.mark.parametrize(("cpu", "vector_bytes"), [("alderlake", 32), ("icelake-server", 64)])
def test_code_for_both_instruction_sets(cpu: str, vector_bytes: int) -> None:
    """AVX_VNNI of processors without AVX-512, and AVX512_VNNI: the module compiles to VPDPBUSD of its own registers."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    level = TARGETS["x86-64-v3" if vector_bytes == 32 else "x86-64-v4"]
    registers = Registers(vector_bytes // 4, 4)
    kernel = MatvecCode("s4", 2, 0, True, False, False, "f32", "f32", (), registers, rounds_source=True)
    module = llvm.parse_assembly(build_module(kernel, level.attributes))
    machine = llvm.Target.from_triple(level.triple).create_target_machine(cpu=cpu, features="")
    lines = [line for line in machine.emit_assembly(module).splitlines() if "vpdpbusd" in line]
    assert len(lines) == 2 * 2 * kernel.width  # halves of bytes, and rows
    assert all(("zmm" if vector_bytes == 64 else "ymm") in line for line in lines)
