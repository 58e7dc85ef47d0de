"""Compiled reorders: they equal the reference and NumPy bit for bit, and change nothing else.

Three computations share no code: the compiled reorder, the reference (coordinate by coordinate from the digits), and
NumPy's pad, reshape and transpose. Source and destination are between guard pages and end at either of them. Every byte
that belongs to no element and no padding must keep its poison.
"""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Layout
from inlay.reordering import compile_reorder
from inlay.reordering.reference import reference_reorder
from inlay.testing import descriptors, layouts, reorder_problems
from tests.support.guarded_buffers import POISON, GuardedBuffer, stored_bytes

Flush = Literal["upper", "lower"]
Bytes = npt.NDArray[np.uint8]
Run = Callable[[int, int], None]

FEW = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
SOME = settings(FEW, max_examples=80)


def span_bytes(desc: MemoryDesc) -> int:
    """Return the number of bytes from the start of the buffer to the end of the last element."""
    layout, data_type = desc.require_layout("test")
    low, high = layout.span
    return -(-(high + desc.offset0) * data_type.bits // 8) if low < high else 0


def noise(nbytes: int, seed: int = 0) -> Bytes:
    """Return random bytes: poisoned padding and gaps included, and NaNs of all kinds among floats."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def guarded(desc: MemoryDesc, flush: Flush = "upper") -> GuardedBuffer:
    return GuardedBuffer(span_bytes(desc), flush, desc.require_layout("test")[1].itemsize)


def check(src: MemoryDesc, dst: MemoryDesc, flush: Flush = "upper", content: Bytes | None = None) -> Bytes:
    """Run the compiled reorder between guard pages, compare it with the reference; return the destination's bytes."""
    source, target = (guarded(desc, flush) for desc in (src, dst))
    source.bytes[:] = noise(source.bytes.size) if content is None else content
    kept = source.bytes.copy()
    source.seal()
    judge(compile_reorder(src, dst).run, src, source, dst, target)
    assert (source.bytes == kept).all(), "the source changed"
    return target.bytes


def judge(run: Run, src: MemoryDesc, source: GuardedBuffer, dst: MemoryDesc, target: GuardedBuffer) -> None:
    """Check that `run` does what the reference does, and nothing else."""
    expected = np.full(target.bytes.size, POISON, np.uint8)
    reference_reorder(src, source.bytes, dst, expected)
    run(source.address, target.address)
    foreign = stored_bytes(dst, target.bytes.size) == 0
    assert (target.bytes[foreign] == POISON).all(), "a byte outside elements and padding changed"
    wrong = np.flatnonzero(target.bytes != expected)
    assert not wrong.size, f"byte {wrong[0]} is {target.bytes[wrong[0]]}, not {expected[wrong[0]]} ({wrong.size} wrong)"
    assert target.gap_is_untouched, "a byte before or after the buffer changed"


def numpy_blocked(array: npt.NDArray[Any], desc: MemoryDesc) -> npt.NDArray[Any]:
    """Return the dense memory of a blocked descriptor by NumPy: pad, split each axis, transpose, flatten."""
    array = np.pad(array, [(0, p - n) for n, p in zip(desc.dims, desc.padded_dims, strict=True)])
    for axis, size in reversed(desc.inner_blocks):
        array = array.reshape(*array.shape[:axis], -1, size, *array.shape[axis + 1 :])
        array = np.moveaxis(array, axis + 1, desc.ndims)
    outer = sorted(range(desc.ndims), key=lambda axis: (-desc.strides[axis], axis))
    return array.transpose([*outer, *range(desc.ndims, array.ndim)]).ravel()


PROBLEMS = {
    "small": reorder_problems(sub_byte=True),
    "whole tiles": reorder_problems(sub_byte=True, large=True),
    "conversions": reorder_problems(convert=True),
    "conversions of whole tiles": reorder_problems(convert=True, large=True),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_compiled_equals_reference(kind: str) -> None:
    @settings(FEW if kind == "small" else SOME)
    @given(PROBLEMS[kind], st.sampled_from(["upper", "lower"]))
    def check_all(pair: tuple[MemoryDesc, MemoryDesc], flush: Flush) -> None:
        check(*pair, flush)

    check_all()


@SOME
@given(layouts(), layouts(), st.sampled_from(["u8", "f32", "s64"]))
def test_free_digits_move_whatever_the_sign_of_their_strides(one: Layout, two: Layout, name: str) -> None:
    dims = tuple(min(pair) for pair in zip(one.dims, two.dims, strict=False))
    assume(dims)
    src, dst = (free_digits(Layout(dims, side.axes[: len(dims)]), name) for side in (one, two))
    check(src, MemoryDesc(dims, name) if dst.require_layout("test")[0].overlaps else dst)


@SOME
@given(descriptors())
def test_there_and_back_is_the_identity(desc: MemoryDesc) -> None:
    plain = MemoryDesc(desc.dims, desc.data_type, allow_empty=True)
    assume(not plain.is_zero)
    packed = check(plain, desc)
    there = noise(span_bytes(plain))
    elements = stored_bytes(plain, there.size)
    assert (check(desc, plain, content=packed) & elements == there & elements).all()


def free_digits(layout: Layout, name: str) -> MemoryDesc:
    """Return a descriptor of any layout whose lowest offset is 0; a plain one if oneDNN's rules refuse it."""
    low, _ = layout.span
    try:
        return MemoryDesc.from_layout(layout, name, offset0=-low)
    except InvalidArguments:
        return MemoryDesc(layout.dims, name)


BOTH_WAYS = [
    ("nchw", "nhwc", (2, 17, 5, 7)),
    ("nchw", "nChw8c", (2, 17, 5, 7)),
    ("nchw", "nChw16c", (3, 35, 9, 8)),
    ("nChw16c", "nChw8c", (2, 20, 3, 3)),
    ("oihw", "OIhw16i16o", (33, 18, 3, 3)),
    ("oihw", "OIhw4i16o4i", (33, 18, 3, 3)),
    ("ab", "BA16a64b4a", (70, 130)),
    ("ab", "AB16b64a2b", (65, 67)),
    ("aBcd8b", "aBcd12b", (2, 50, 3, 5)),
]
BLOCKED = [
    *BOTH_WAYS,
    *((dst, src, dims) for src, dst, dims in BOTH_WAYS),
    ("nChw16c", "nhwc", (2, 20, 3, 3)),
    ("oihw", "Owhi16o", (33, 70, 3, 3)),
    ("ab", "BA16a16b", (271, 47)),
    ("abc", "aCB16b64c", (3, 89, 73)),
    ("nChw4c", "nChw16c", (5, 40, 3, 3)),
    ("Owhi16o", "oihw", (32, 64, 3, 5)),
    ("ab", "ba", (130, 67)),
    ("ab", "ba", (64, 256)),
    ("aBcd5b3b", "acBd4b", (2, 31, 3, 5)),
    ("a", "A8a", (17,)),
    ("abcdef", "fedcba", (2, 3, 2, 5, 2, 3)),
]


@pytest.mark.parametrize("name", ["u8", "bf16", "f32", "f64"])
@pytest.mark.parametrize(("src", "dst", "dims"), BLOCKED, ids=[f"{s}-{d}" for s, d, _ in BLOCKED])
def test_compiled_equals_numpy(src: str, dst: str, dims: tuple[int, ...], name: str) -> None:
    one, two = MemoryDesc(dims, name, src), MemoryDesc(dims, name, dst)
    size = DATA_TYPES[name].itemsize
    values = noise(size * math.prod(dims)).view(f"u{size}").reshape(dims)
    # The padding of the source may hold anything.
    source = numpy_blocked(values, one)
    dirty = numpy_blocked(np.ones_like(values), one) == 0
    source[dirty] = noise(source.nbytes, 1).view(source.dtype)[dirty]
    got = check(one, two, content=source.view(np.uint8))
    assert (got.view(values.dtype) == numpy_blocked(values, two)).all()


@pytest.mark.parametrize("flush", ["upper", "lower"])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127])
@pytest.mark.parametrize("name", ["u8", "f32"])
def test_transposes_of_all_tails(name: str, rows: int, flush: Flush) -> None:
    for columns in (1, 5, 16, 63, 64, 66):
        dims = (rows, columns)
        check(MemoryDesc(dims, name, "ab"), MemoryDesc(dims, name, "ba"), flush)


@pytest.mark.parametrize(
    ("dims", "strides"), [((20, 33), (0, 1)), ((20, 33), (1, 0)), ((20, 33), (0, 0)), ((3, 1, 40), (0, 7, 1))]
)
def test_broadcast_sources(dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    src = MemoryDesc(dims, "f32", strides=strides)
    check(src, MemoryDesc(dims, "f32", "ba" if len(dims) == 2 else "cba"))
    got = check(src, MemoryDesc(dims, "f32"))
    held = np.lib.stride_tricks.as_strided(noise(span_bytes(src)).view(np.uint32), dims, [4 * s for s in strides])
    assert (got.view(np.uint32).reshape(dims) == held).all()


def test_the_same_layout_zeroes_padding_too() -> None:
    desc = MemoryDesc((2, 17, 5, 7), "f32", "nChw8c")
    got = check(desc, desc).view(np.uint32).reshape(2, 3, 5, 7, 8)
    assert not got[:, 2, :, :, 1:].any()
    assert got[:, 2, :, :, 0].any()


def test_threads_share_one_reorder() -> None:
    src, dst = MemoryDesc((64, 96, 20), "f32", "abc"), MemoryDesc((64, 96, 20), "f32", "caB16b")
    run = compile_reorder(src, dst).run

    def work(seed: int) -> None:
        flush: Flush = "upper" if seed % 2 else "lower"
        source = guarded(src, flush)
        source.bytes[:] = noise(source.bytes.size, seed)
        for _ in range(6):
            judge(run, src, source, dst, guarded(dst, flush))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4


def test_work_is_split_without_seams() -> None:
    # Far more than one part: 3 MB each way.
    dims = (5, 33, 71, 67)
    check(MemoryDesc(dims, "f32", "nchw"), MemoryDesc(dims, "f32", "nChw16c"))
    check(MemoryDesc((1031, 1537), "u8", "ab"), MemoryDesc((1031, 1537), "u8", "ba"))


@pytest.mark.parametrize(
    ("place", "value", "verdict"),
    [
        (42, 18, "byte 42 is 18, not 19 (1 wrong)"),
        (36, 9, "byte 36 is 9, not 0 (1 wrong)"),  # padding
        (1, 0, "a byte outside elements and padding changed"),
    ],
)
def test_the_checker_detects_a_wrong_byte(place: int, value: int, verdict: str) -> None:
    src, dst = MemoryDesc((3, 17), "u8", "ab"), MemoryDesc((3, 17), "u8", strides=(40, 2), padded_dims=(3, 19))
    source, target = guarded(src), guarded(dst)
    source.bytes[:] = np.arange(source.bytes.size) + 1

    def run(src_address: int, dst_address: int) -> None:
        assert (src_address, dst_address) == (source.address, target.address)
        reference_reorder(src, source.bytes, dst, target.bytes)

    def run_spoiled(src_address: int, dst_address: int) -> None:
        run(src_address, dst_address)
        target.bytes[place] = value

    judge(run, src, source, dst, target)
    target.bytes[:] = POISON
    with pytest.raises(AssertionError, match=f"^{re.escape(verdict)}"):
        judge(run_spoiled, src, source, dst, target)


OUTSIDE = "ctypes.c_uint8.from_address(buffer.address "


@pytest.mark.parametrize(
    ("flush", "deed"),
    [
        ("upper", f"{OUTSIDE}+ 4096).value"),
        ("upper", f"{OUTSIDE}+ 4096).value = 1"),
        ("lower", f"{OUTSIDE}- 1).value"),
        ("lower", f"{OUTSIDE}- 1).value = 1"),
        ("upper", "buffer.seal(); buffer.bytes[0] = 1"),
    ],
)
def test_a_wrong_access_stops_the_process(flush: str, deed: str) -> None:
    imports = "import ctypes\nfrom tests.support.guarded_buffers import GuardedBuffer"
    script = f"{imports}\nbuffer = GuardedBuffer(4096, {flush!r})\n{deed}\nprint('unharmed')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode < 0, done.stdout) == (True, "")
