"""Compiled reorders: they equal the reference and NumPy bit for bit, and change nothing else.

Three computations share no code: the compiled reorder, the reference (coordinate by coordinate from the digits), and
NumPy's pad, reshape and transpose. Source and destination are between guard pages and end at either of them. Every byte
that belongs to no element and no padding must keep its poison.
"""

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

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Layout
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
    assert isinstance(desc.layout, Layout)
    assert desc.data_type is not None
    low, high = desc.layout.span
    return -(-(high + desc.offset0) * desc.data_type.bits // 8) if low < high else 0


def noise(nbytes: int, seed: int = 0) -> Bytes:
    """Return random bytes: poisoned padding and gaps included, and NaNs of all kinds among floats."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def check(src: MemoryDesc, dst: MemoryDesc, flush: Flush = "upper", content: Bytes | None = None) -> Bytes:
    """Run the compiled reorder between guard pages, compare it with the reference; return the destination's bytes."""
    assert src.data_type is not None
    assert dst.data_type is not None
    source = GuardedBuffer(span_bytes(src), flush, src.data_type.itemsize)
    target = GuardedBuffer(span_bytes(dst), flush, dst.data_type.itemsize)
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
    blocks = desc.inner_blocks
    padded = np.pad(array, [(0, p - n) for n, p in zip(desc.dims, desc.padded_dims, strict=True)])
    split: list[int] = []
    where: dict[tuple[int, int], int] = {}
    for axis, size in enumerate(desc.padded_dims):
        mine = [(k, b) for k, (a, b) in enumerate(blocks) if a == axis]
        where[axis, -1] = len(split)
        split.append(size // int(np.prod([b for _, b in mine], dtype=int)))
        for k, b in mine:
            where[axis, k] = len(split)
            split.append(b)
    outer = sorted(range(desc.ndims), key=lambda axis: (-desc.strides[axis], axis))
    order = [where[axis, -1] for axis in outer] + [where[axis, k] for k, (axis, _) in enumerate(blocks)]
    return padded.reshape(split).transpose(order).ravel()


def logical(desc: MemoryDesc, data_type: DataType, seed: int = 0) -> npt.NDArray[Any]:
    """Return random bits as elements for `desc`, in unsigned integers."""
    raw = noise(int(np.prod(desc.dims)) * data_type.itemsize, seed)
    return raw.view(f"u{data_type.itemsize}").reshape(desc.dims)


class TestLaw:
    @FEW
    @given(reorder_problems(sub_byte=True), st.sampled_from(["upper", "lower"]))
    def test_compiled_equals_reference(self, pair: tuple[MemoryDesc, MemoryDesc], flush: Flush) -> None:
        check(*pair, flush)

    @SOME
    @given(reorder_problems(sub_byte=True, large=True), st.sampled_from(["upper", "lower"]))
    def test_compiled_equals_reference_on_whole_tiles(self, pair: tuple[MemoryDesc, MemoryDesc], flush: Flush) -> None:
        check(*pair, flush)

    @SOME
    @given(reorder_problems(convert=True), st.sampled_from(["upper", "lower"]))
    def test_conversion_equals_reference(self, pair: tuple[MemoryDesc, MemoryDesc], flush: Flush) -> None:
        check(*pair, flush)

    @SOME
    @given(reorder_problems(convert=True, large=True))
    def test_conversion_equals_reference_on_whole_tiles(self, pair: tuple[MemoryDesc, MemoryDesc]) -> None:
        check(*pair)

    @SOME
    @given(layouts(), layouts(), st.sampled_from(["u8", "f32", "s64"]))
    def test_free_digits_move_whatever_the_sign_of_their_strides(self, one: Layout, two: Layout, name: str) -> None:
        dims = tuple(min(pair) for pair in zip(one.dims, two.dims, strict=False))
        assume(dims)
        pair = [free_digits(Layout(dims, side.axes[: len(dims)]), name) for side in (one, two)]
        assert isinstance(pair[1].layout, Layout)
        if pair[1].layout.overlaps:
            pair[1] = MemoryDesc(dims, name)
        check(pair[0], pair[1])

    @SOME
    @given(descriptors())
    def test_there_and_back_is_the_identity(self, desc: MemoryDesc) -> None:
        assert desc.data_type is not None
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


BLOCKED = [
    ("nchw", "nhwc", (2, 17, 5, 7)),
    ("nhwc", "nchw", (2, 17, 5, 7)),
    ("nchw", "nChw8c", (2, 17, 5, 7)),
    ("nChw8c", "nchw", (2, 17, 5, 7)),
    ("nchw", "nChw16c", (3, 35, 9, 8)),
    ("nChw16c", "nchw", (3, 35, 9, 8)),
    ("nChw16c", "nChw8c", (2, 20, 3, 3)),
    ("nChw8c", "nChw16c", (2, 20, 3, 3)),
    ("nChw16c", "nhwc", (2, 20, 3, 3)),
    ("oihw", "OIhw16i16o", (33, 18, 3, 3)),
    ("OIhw16i16o", "oihw", (33, 18, 3, 3)),
    ("oihw", "OIhw4i16o4i", (33, 18, 3, 3)),
    ("OIhw4i16o4i", "oihw", (33, 18, 3, 3)),
    ("oihw", "Owhi16o", (33, 70, 3, 3)),
    ("ab", "BA16a16b", (271, 47)),
    ("abc", "aCB16b64c", (3, 89, 73)),
    ("nChw4c", "nChw16c", (5, 40, 3, 3)),
    ("Owhi16o", "oihw", (32, 64, 3, 5)),
    ("ab", "BA16a64b4a", (70, 130)),
    ("BA16a64b4a", "ab", (70, 130)),
    ("ab", "ba", (130, 67)),
    ("ab", "ba", (64, 256)),
    ("ab", "AB16b64a2b", (65, 67)),
    ("AB16b64a2b", "ab", (65, 67)),
    ("aBcd8b", "aBcd12b", (2, 50, 3, 5)),
    ("aBcd12b", "aBcd8b", (2, 50, 3, 5)),
    ("aBcd5b3b", "acBd4b", (2, 31, 3, 5)),
    ("a", "A8a", (17,)),
    ("abcdef", "fedcba", (2, 3, 2, 5, 2, 3)),
]


class TestFormats:
    @pytest.mark.parametrize("name", ["u8", "bf16", "f32", "f64"])
    @pytest.mark.parametrize(("src", "dst", "dims"), BLOCKED, ids=[f"{s}-{d}" for s, d, _ in BLOCKED])
    def test_compiled_equals_numpy(self, src: str, dst: str, dims: tuple[int, ...], name: str) -> None:
        data_type = DATA_TYPES[name]
        one, two = MemoryDesc(dims, name, src), MemoryDesc(dims, name, dst)
        values = logical(one, data_type)
        # What lies in the padding of the source is no business of the destination.
        source = numpy_blocked(values, one)
        dirty = numpy_blocked(np.ones_like(values), one) == 0
        source[dirty] = noise(source.nbytes, 1).view(source.dtype)[dirty]
        got = check(one, two, content=source.view(np.uint8))
        assert (got.view(values.dtype) == numpy_blocked(values, two)).all()

    @pytest.mark.parametrize("name", DATA_TYPES)
    def test_every_type_moves_bit_for_bit(self, name: str) -> None:
        dims = (3, 66, 70)
        check(MemoryDesc(dims, name, "abc"), MemoryDesc(dims, name, "acB16b"))
        check(MemoryDesc(dims, name, "acB16b"), MemoryDesc(dims, name, "abc"))

    @pytest.mark.parametrize("flush", ["upper", "lower"])
    @pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127])
    @pytest.mark.parametrize("name", ["u8", "f32"])
    def test_transposes_of_all_tails(self, name: str, rows: int, flush: Flush) -> None:
        for columns in (1, 5, 16, 63, 64, 66):
            dims = (rows, columns)
            check(MemoryDesc(dims, name, "ab"), MemoryDesc(dims, name, "ba"), flush)

    @pytest.mark.parametrize(
        ("dims", "strides"), [((20, 33), (0, 1)), ((20, 33), (1, 0)), ((20, 33), (0, 0)), ((3, 1, 40), (0, 7, 1))]
    )
    def test_broadcast_sources(self, dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
        src = MemoryDesc(dims, "f32", strides=strides)
        for dst in (MemoryDesc(dims, "f32"), MemoryDesc(dims, "f32", strides=_columns_first(dims))):
            check(src, dst)
        got = check(src, MemoryDesc(dims, "f32"))
        held = np.lib.stride_tricks.as_strided(noise(span_bytes(src)).view(np.uint32), dims, [4 * s for s in strides])
        assert (got.view(np.uint32).reshape(dims) == held).all()

    @pytest.mark.parametrize("dims", [(0, 5), (5, 0), (0, 0)])
    def test_nothing_is_written_where_a_dim_is_zero(self, dims: tuple[int, ...]) -> None:
        check(MemoryDesc(dims, "f32", "ab"), MemoryDesc(dims, "f32", "Ba16b"))

    @pytest.mark.parametrize("name", ["u8", "f32"])
    def test_a_part_of_a_block_leaves_the_rest_of_it(self, name: str) -> None:
        whole = MemoryDesc((2, 32, 4, 4), name, "nChw16c")
        for channels, first in ((3, 16), (16, 16), (16, 0), (5, 0)):
            dims = (2, channels, 4, 4)
            part = whole.submemory(dims, (0, first, 0, 0))
            check(MemoryDesc(dims, name, "nchw"), part)
            check(part, MemoryDesc(dims, name, "nchw"))

    def test_gaps_of_strides_are_untouched(self) -> None:
        dims = (37, 70)
        for strides in ((80, 1), (1, 48), (160, 2)):
            check(MemoryDesc(dims, "f32"), MemoryDesc(dims, "f32", strides=strides))
            check(MemoryDesc(dims, "u8", "ba"), MemoryDesc(dims, "u8", strides=strides))

    def test_padded_strides_are_zeroed_beyond_the_dims(self) -> None:
        dst = MemoryDesc((5, 7), "f32", strides=(20, 2), padded_dims=(6, 9))
        got = check(MemoryDesc((5, 7), "f32", "ba"), dst).view(np.uint32)
        poison = int(np.full(4, POISON, np.uint8).view(np.uint32)[0])
        assert got[14:18:2].tolist() == [0, 0]
        assert got[100:117:2].tolist() == [0] * 9
        assert got[1::2].tolist() == [poison] * (got.size // 2)

    def test_the_same_layout_zeroes_padding_too(self) -> None:
        desc = MemoryDesc((2, 17, 5, 7), "f32", "nChw8c")
        got = check(desc, desc).view(np.uint32).reshape(2, 3, 5, 7, 8)
        assert not got[:, 2, :, :, 1:].any()
        assert got[:, 2, :, :, 0].any()


def _columns_first(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(dims[:i], dtype=int)) for i in range(len(dims)))


class TestThreads:
    def test_threads_share_one_reorder(self) -> None:
        src, dst = MemoryDesc((64, 96, 20), "f32", "abc"), MemoryDesc((64, 96, 20), "f32", "caB16b")
        run = compile_reorder(src, dst).run
        sides: tuple[Flush, Flush] = ("upper", "lower")

        def work(seed: int) -> None:
            for flush in sides:
                source = GuardedBuffer(span_bytes(src), flush, 4)
                source.bytes[:] = noise(source.bytes.size, seed)
                for _ in range(3):
                    judge(run, src, source, dst, GuardedBuffer(span_bytes(dst), flush, 4))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [None] * 4

    def test_work_is_split_without_seams(self) -> None:
        # Far more than one part: 3 MB each way.
        dims = (5, 33, 71, 67)
        check(MemoryDesc(dims, "f32", "nchw"), MemoryDesc(dims, "f32", "nChw16c"))
        check(MemoryDesc((1031, 1537), "u8", "ab"), MemoryDesc((1031, 1537), "u8", "ba"))


class TestRefusals:
    @pytest.mark.parametrize(
        ("src", "dst", "error", "text"),
        [
            (
                MemoryDesc((2, 3), "f32"),
                MemoryDesc((3, 2), "f32"),
                InvalidArguments,
                "a reorder keeps the dims: source (2, 3), destination (3, 2)",
            ),
            (
                MemoryDesc((2, 3), "f32", "any"),
                MemoryDesc((2, 3), "f32"),
                InvalidArguments,
                "the source of a reorder is of kind any: give it a layout with addresses",
            ),
            (
                MemoryDesc((2, 3), "f32"),
                MemoryDesc((2, 3), "f32", "any"),
                InvalidArguments,
                "the destination of a reorder is of kind any: give it a layout with addresses",
            ),
            (
                MemoryDesc((2, 3), "f32"),
                MemoryDesc((2, 3), "f32", strides=(0, 1)),
                InvalidArguments,
                "elements of the destination overlap: give every element an offset of its own",
            ),
            (
                MemoryDesc((RUNTIME, 3), "f32"),
                MemoryDesc((RUNTIME, 3), "f32", "ba"),
                Unimplemented,
                "a reorder needs every dim and stride: bind the RUNTIME ones first",
            ),
        ],
    )
    def test_a_reorder_is_refused(self, src: MemoryDesc, dst: MemoryDesc, error: type[Exception], text: str) -> None:
        with pytest.raises(error) as caught:
            compile_reorder(src, dst)
        assert str(caught.value) == text


GUARDED = "from tests.support.guarded_buffers import GuardedBuffer"


class TestTheCheckerItself:
    """The checker must detect wrong results."""

    SRC = MemoryDesc((3, 17), "u8", "ab")
    DST = MemoryDesc((3, 17), "u8", strides=(40, 2), padded_dims=(3, 19))

    def verdict(self, spoil: Callable[[Bytes], None]) -> str:
        source, target = (GuardedBuffer(span_bytes(d)) for d in (self.SRC, self.DST))
        source.bytes[:] = np.arange(source.bytes.size) + 1

        def run(src_address: int, dst_address: int) -> None:
            assert (src_address, dst_address) == (source.address, target.address)
            reference_reorder(self.SRC, source.bytes, self.DST, target.bytes)
            spoil(target.bytes)

        try:
            judge(run, self.SRC, source, self.DST, target)
        except AssertionError as fault:
            return str(fault).splitlines()[0]
        return "right"

    def test_a_right_result_passes(self) -> None:
        assert self.verdict(lambda target: None) == "right"

    def test_a_wrong_element_is_found(self) -> None:
        def spoil(target: Bytes) -> None:
            target[42] ^= 1

        assert self.verdict(spoil) == "byte 42 is 18, not 19 (1 wrong)"

    def test_dirty_padding_is_found(self) -> None:
        def spoil(target: Bytes) -> None:
            target[36] = 9

        assert self.verdict(spoil) == "byte 36 is 9, not 0 (1 wrong)"

    def test_a_touched_gap_is_found(self) -> None:
        def spoil(target: Bytes) -> None:
            target[1] = 0

        assert self.verdict(spoil) == "a byte outside elements and padding changed"

    @pytest.mark.parametrize("flush", ["upper", "lower"])
    @pytest.mark.parametrize("deed", ["read", "write"])
    def test_a_guard_page_stops_the_process(self, flush: str, deed: str) -> None:
        step = "buffer.address + 4096" if flush == "upper" else "buffer.address - 1"
        act = f"ctypes.c_uint8.from_address({step}).value" + (" = 1" if deed == "write" else "")
        script = f"import ctypes\n{GUARDED}\nbuffer = GuardedBuffer(4096, {flush!r})\n{act}\nprint('unharmed')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode < 0, done.stdout) == (True, "")

    def test_a_sealed_source_stops_the_process(self) -> None:
        script = f"{GUARDED}\nbuffer = GuardedBuffer(8)\nbuffer.seal()\nbuffer.bytes[0] = 1\nprint('unharmed')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode < 0, done.stdout) == (True, "")
