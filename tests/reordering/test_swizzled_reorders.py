"""Compiled reorders of swizzled memory: they equal the reference bit for bit, and change nothing else.

Source and destination are between guard pages. All bytes are random before, so that a byte which is written and belongs
to no element shows as a difference from the reference, which computes one coordinate at a time.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout, Swizzle
from inlay.reordering import compile_reorder
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.compiled import compile_problem
from inlay.reordering.kernel import AddressSwizzle
from inlay.reordering.machine_code import ir_of
from inlay.reordering.planning import plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import assembly_of, named_target
from inlay.testing import reorder_problems, swizzles
from tests.support.guarded_buffers import GuardedBuffer

FEW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
SOME = settings(FEW, max_examples=60)
LARGEST = 1 << 18  # bytes of a buffer


def with_swizzle(desc: MemoryDesc, swizzle: Swizzle | None, header: int = 0) -> MemoryDesc:
    """The descriptor with a swizzle and `header` elements before it; `desc` itself without one."""
    if swizzle is None:
        return desc
    layout, data_type = desc.require_layout("a test")
    try:
        return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=header, swizzle=swizzle)
    except InvalidArguments:  # negative offsets, or strides that split a byte
        return desc


def end_of(desc: MemoryDesc) -> int:
    """The end of the memory of a descriptor, in bytes from the start of its buffer."""
    assert desc.data_type is not None
    if desc.swizzle is not None:
        return desc.size + desc.offset0 * desc.data_type.bits // 8
    low, high = desc.require_layout("a test")[0].span
    return -(-(high + desc.offset0) * desc.data_type.bits // 8) if low < high else 0


def check(src: MemoryDesc, dst: MemoryDesc, decision: Decision | None = None, *, aligned: bool = False) -> None:
    """Run the compiled reorder between guard pages and compare every byte with the reference."""
    reorder = compile_problem(build_reorder_problem(src, dst), decision)
    check_run(lambda source, target: reorder.run(source.address, target.address), src, dst, aligned=aligned)


def check_run(
    run: Callable[[GuardedBuffer, GuardedBuffer], None],
    src: MemoryDesc,
    dst: MemoryDesc,
    attributes: Attributes = PLAIN,
    *,
    aligned: bool = False,
) -> None:
    """Run a reorder between guard pages and compare every byte with the reference."""
    sizes = end_of(src), end_of(dst)
    flush = "lower" if aligned else "upper"
    source, target = (GuardedBuffer(nbytes, flush) for nbytes in sizes)  # type: ignore[arg-type]
    for seed, buffer in enumerate((source, target)):
        buffer.bytes[:] = np.random.default_rng(seed).integers(0, 256, buffer.bytes.size, np.uint8)
    expected = target.bytes.copy()
    reference_reorder(src, source.bytes, dst, expected, attributes)
    source.seal()
    run(source, target)
    wrong = np.flatnonzero(target.bytes != expected)
    assert not wrong.size, f"{wrong.size} bytes differ from {wrong[0]} on: {src!r} -> {dst!r}"
    assert target.gap_is_untouched


PROBLEMS = {
    "small": reorder_problems(sub_byte=True),
    "whole tiles": reorder_problems(sub_byte=True, large=True),
    "conversions": reorder_problems(convert=True),
    "conversions of whole tiles": reorder_problems(convert=True, large=True),
}
SIDES = st.sampled_from([(True, False), (False, True), (True, True)])


@pytest.mark.parametrize("kind", PROBLEMS)
def test_swizzled_reorders_equal_the_reference(kind: str) -> None:
    @settings(FEW if kind == "small" else SOME)
    @given(PROBLEMS[kind], SIDES, swizzles(whole_bytes=True), swizzles(whole_bytes=True), st.integers(0, 3))
    def check_all(
        pair: tuple[MemoryDesc, MemoryDesc], sides: tuple[bool, bool], one: Swizzle, two: Swizzle, header: int
    ) -> None:
        drawn = [swizzle if chosen else None for swizzle, chosen in zip((one, two), sides, strict=True)]
        src, dst = (with_swizzle(desc, s, 2 * header) for desc, s in zip(pair, drawn, strict=True))
        assume(max(end_of(src), end_of(dst)) <= LARGEST)
        check(src, dst)

    check_all()


TILES = Layout((96, 256), (Axis(64), Axis(96 * 64, (Digit(64, 1),))))
LAYOUTS = {
    "tiles": TILES,
    "rows": Layout.row_major((96, 256)),
    "columns": Layout.column_major((96, 256)),
    "ragged rows": Layout.row_major((97, 251)),
    "pitched rows": Layout((97, 251), (Axis(256), Axis(1))),
}
SWIZZLES = [
    Swizzle(3, 4, 3),
    Swizzle(3, 3, 3),
    Swizzle(3, 2, 3),
    Swizzle(2, 4, 3),
    Swizzle(1, 0, 1),
    Swizzle(5, 0, 5),
    Swizzle(2, 4, -3),
    Swizzle(3, 1, -4),
]


TYPES = ("u8", "bf16", "f32", "f64")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("i", range(len(SWIZZLES)), ids=map(str, SWIZZLES))
def test_streaming_stores(layout: str, i: int) -> None:
    data_type = TYPES[(i + list(LAYOUTS).index(layout)) % len(TYPES)]
    swizzled = MemoryDesc.from_layout(LAYOUTS[layout], data_type, swizzle=SWIZZLES[i])
    for tag in ("ab", "ba", "Ba16b"):
        plain = MemoryDesc(swizzled.dims, data_type, tag)
        for src, dst in ((plain, swizzled), (swizzled, plain)):
            check(src, dst, Decision(Choice(streams=True)), aligned=True)
    unaligned = with_swizzle(MemoryDesc.from_layout(LAYOUTS[layout], data_type), SWIZZLES[i], 3)
    check(MemoryDesc(swizzled.dims, data_type, "ba"), unaligned, Decision(Choice(streams=True)), aligned=True)


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("data_type", TYPES)
def test_narrow_registers(width: int, data_type: str) -> None:
    for i, swizzle in enumerate(SWIZZLES):
        layout = LAYOUTS["ragged rows"] if i % 2 else TILES
        swizzled = MemoryDesc.from_layout(layout, data_type, offset0=3, swizzle=swizzle)
        plain = MemoryDesc(swizzled.dims, data_type, "ba", offset0=1)
        for src, dst in ((plain, swizzled), (swizzled, plain)):
            check(src, dst, Decision(Choice(width=width)))


def check_large(src: MemoryDesc, dst: MemoryDesc, threads: int) -> None:
    """Compare a reorder of many elements with the formula of both offsets, evaluated by NumPy."""
    assert src.data_type is not None
    random, itemsize = np.random.default_rng(0), src.data_type.itemsize
    given, written = (random.integers(0, 256, (end_of(d) // itemsize, itemsize), np.uint8) for d in (src, dst))
    expected = written.copy()
    places = np.indices(src.dims).reshape(len(src.dims), -1).T
    expected[dst.offset(places)] = given[src.offset(places)]
    reorder = compile_problem(build_reorder_problem(src, dst), Decision(Choice(threads=threads)))
    assert reorder.parts == threads
    reorder.run(given.ctypes.data, written.ctypes.data)
    assert np.array_equal(written, expected)


@pytest.mark.parametrize("data_type", TYPES)
def test_two_threads(data_type: str) -> None:
    swizzled = MemoryDesc((1000, 1111), data_type, "ab", offset0=5, swizzle=Swizzle(3, 3, 3))
    plain = MemoryDesc(swizzled.dims, data_type, "ba")
    check_large(plain, swizzled, 2)
    check_large(swizzled, plain, 2)


@pytest.mark.parametrize("name", ["complex64", "complex128", "bool", "u16"])
def test_types_that_are_moved_bit_by_bit(name: str) -> None:
    swizzled = MemoryDesc((33, 64), name, "ab", swizzle=Swizzle(3, 1, 4), offset0=2)
    plain = MemoryDesc((33, 64), name, "ba")
    for other in (plain, MemoryDesc((33, 64), name, "ba", swizzle=Swizzle(2, 20, 38))):
        check_large(other, swizzled, 1)
        check_large(swizzled, other, 1)


def test_a_sum_reads_the_swizzled_destination() -> None:
    attributes = Attributes(sum=1.0)
    src, dst = MemoryDesc((40, 70), "s8", "ba"), MemoryDesc((40, 70), "s8", "ab", swizzle=Swizzle(3, 1, 3))
    reorder = compile_reorder(src, dst, attributes)
    check_run(lambda source, target: reorder.run(source.address, target.address, {}), src, dst, attributes)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64-sve256"])
def test_every_target_compiles_swizzles(target: str) -> None:
    machine, tiles = named_target(target), MemoryDesc.from_layout(TILES, "bf16", swizzle=Swizzle(3, 3, 3))
    plain = [MemoryDesc((96, 256), data_type, "ba") for data_type in ("bf16", "f16", "f32", "u8")]
    for pair in (*((desc, tiles) for desc in plain), *((tiles, desc) for desc in plain)):
        kernel = plan_reorder(build_reorder_problem(*pair), machine).kernel
        assert assembly_of(ir_of(kernel, machine), machine)


# The kernel


def test_whole_lines_are_streamed_where_the_swizzle_keeps_them_whole() -> None:
    plain = MemoryDesc((128, 64), "bf16", "ba")
    machine, choice = named_target("x86-64-v4"), Choice(streams=True)
    for swizzle, stores in (
        (Swizzle(3, 3, 3), "streamed"),
        (Swizzle(1, 0, 5), "streamed"),
        (Swizzle(1, 1, -5), "cached"),
    ):
        problem = build_reorder_problem(plain, MemoryDesc((128, 64), "bf16", "ab", swizzle=swizzle))
        assert plan_reorder(problem, machine, choice).kernel.stores == stores


def test_problems_of_different_swizzles_differ() -> None:
    plain = MemoryDesc((128, 64), "bf16", "ba")
    problems = {
        build_reorder_problem(plain, with_swizzle(MemoryDesc((128, 64), "bf16", "ab"), swizzle))
        for swizzle in (None, Swizzle(3, 3, 3), Swizzle(2, 3, 3))
    }
    assert len(problems) == 3
    text = "offsets in the destination through Swizzle<3,3,3>"
    assert sum(text in str(problem) for problem in problems) == 1


@given(st.integers(1, 5), st.integers(0, 8), st.sampled_from([5, 7, -5, -7]), st.integers(0, 8), st.integers(0, 8))
def test_parts_are_permuted_within_themselves(bits: int, base: int, shift: int, alignment: int, size: int) -> None:
    """Post-conditions of `AddressSwizzle.part` and `piece`."""
    swizzle = Swizzle(bits, base, shift)
    address = AddressSwizzle(swizzle.source_mask, shift, 1 << alignment)
    part, piece = address.part(1 << size), address.piece
    assert part <= min(1 << alignment, 1 << size)
    assert piece <= 1 << alignment
    places: npt.NDArray[np.int64] = swizzle.apply(np.arange(1 << 13))
    assert [address.apply(i) for i in range(1 << 13)] == places.tolist()
    assert (np.ptp(places.reshape(-1, part) // part, axis=1) == 0).all()
    assert (np.diff(places.reshape(-1, piece), axis=1) == 1).all()
