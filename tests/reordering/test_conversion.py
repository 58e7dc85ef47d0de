"""Compiled conversions: every pair of data types, and each code of the narrow types, must equal the reference.

Compiled code runs on whole registers and at edges, with the shuffles of a transpose, on registers of every width, and
without the instructions for f16 and bf16. Results are also compared with ml_dtypes, NumPy and oneDNN where these follow
the rule of decision 0007.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compile_reorder, compiled
from inlay.reordering.instructions import Arithmetic
from inlay.reordering.reference import read_codes, write_codes
from inlay.reordering.target import TargetMachine, host_target
from inlay.testing import CONVERTIBLE, descriptors, shapes
from tests.oracles import onednn
from tests.reordering.test_reorder import check
from tests.support.edge_codes import edge_codes

NIBBLES = [t.name for t in DATA_TYPES.values() if t.is_sub_byte]
PAIRS = [(src, dst) for src in DATA_TYPES for dst in DATA_TYPES if src != dst]
THROUGH_F32 = [pair for pair in PAIRS if "f32" in pair]
_FLOATS, _INTEGERS = ("bf16", "f16", "f8_e5m2", "f8_e4m3", "e8m0"), ("s8", "u8", "s32")
AS_ONEDNN = [
    *((name, "f32") for name in _FLOATS + _INTEGERS),
    *(("f32", name) for name in ("bf16", "f16", "e8m0", *_INTEGERS)),
    *((src, dst) for src in _INTEGERS for dst in _INTEGERS if src != dst),
]
"""Pairs for which oneDNN follows the formula: without NaN to integers, subnormals to bf16, and rounding to f8 twice."""
NO_INSTRUCTIONS = Arithmetic(f16=False, bf16=False, permute_bits=0)
PROCESSORS = {
    "x86-64": (16, NO_INSTRUCTIONS),
    "haswell": (32, replace(NO_INSTRUCTIONS, f16=True)),
    "skylake-avx512": (64, replace(NO_INSTRUCTIONS, f16=True, permute_bits=16)),
}
"""Names that LLVM gives processors, the bytes of their registers, and what they have instructions for."""

Codes = npt.NDArray[np.unsignedinteger[Any]]


def in_memory(desc: MemoryDesc, codes: Codes) -> npt.NDArray[np.uint8]:
    buffer = np.zeros(desc.size, np.uint8)
    write_codes(desc, buffer, codes)
    return buffer


def converted(codes: Codes, src: str, dst: str) -> Codes:
    """Convert contiguous codes by the compiled reorder, which must equal the reference."""
    one, two = (MemoryDesc(codes.shape, name, "a") for name in (src, dst))
    return read_codes(two, check(one, two, content=in_memory(one, codes)))


def unsigned(values: npt.NDArray[Any]) -> Codes:
    return values.view(f"u{values.itemsize}")


def require_equal(codes: Codes, got: Codes, wanted: Codes) -> None:
    wrong = np.flatnonzero(got != wanted)
    shown = [tuple(hex(int(side[i])) for side in (codes, got, wanted)) for i in wrong[:5]]
    assert not wrong.size, f"{wrong.size} of {codes.size} wrong; code, got, wanted: {shown}"


@pytest.fixture(params=PROCESSORS)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetMachine]:
    """Provide another processor whose code runs on this one too."""
    host = host_target()
    width, arithmetic = PROCESSORS[request.param]
    if not host.triple.startswith("x86_64") or host.vector_bytes < width:
        pytest.skip(f"no x86-64 processor with registers of {width} bytes")
    target = replace(host, cpu=request.param, features="", vector_bytes=width, arithmetic=arithmetic)
    monkeypatch.setattr(compiled, "host_target", lambda: target)
    find_reorder.cache_clear()
    yield target
    find_reorder.cache_clear()


@st.composite
def nibble_problems(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Return moves and conversions with 4-bit elements on at least one side."""
    dims = draw(shapes() | st.tuples(st.integers(60, 130), st.integers(60, 130)))
    narrow = draw(st.sampled_from(NIBBLES))
    other = draw(st.sampled_from([narrow, *DATA_TYPES]))
    one, two = (draw(descriptors(dims=dims, data_type=name)) for name in (narrow, other))
    return (one, two) if draw(st.booleans()) else (two, one)


class TestEveryPair:
    @pytest.mark.parametrize(("src", "dst"), PAIRS)
    def test_codes_in_a_row(self, src: str, dst: str) -> None:
        converted(edge_codes(src), src, dst)

    @pytest.mark.parametrize(("src", "dst"), THROUGH_F32)
    def test_codes_that_are_shuffled(self, src: str, dst: str) -> None:
        codes = edge_codes(src)
        codes = np.concatenate([codes, codes[: -codes.size % 16]]).reshape(16, -1)
        one, two = MemoryDesc(codes.shape, src, "ab"), MemoryDesc(codes.shape, dst, "ba")
        check(one, two, content=in_memory(one, codes))

    @pytest.mark.parametrize(
        ("src", "dst"),
        [pytest.param(*pair, marks=[] if pair in THROUGH_F32 else [pytest.mark.heavy]) for pair in PAIRS],
    )
    def test_other_processors(self, src: str, dst: str, processor: TargetMachine) -> None:
        converted(edge_codes(src), src, dst)


class TestPadding:
    @pytest.mark.parametrize("name", sorted({*CONVERTIBLE} - {"f32"}))
    def test_padding_of_a_conversion_is_zero(self, name: str) -> None:
        check(MemoryDesc((3, 21, 5, 5), "f32", "nchw"), MemoryDesc((3, 21, 5, 5), name, "nChw16c"))
        check(MemoryDesc((3, 21, 5, 5), name, "nChw16c"), MemoryDesc((3, 21, 5, 5), "f32", "nhwc"))

    @pytest.mark.parametrize("tag", ["nChw16c", "Abcd4a"])
    def test_padding_of_a_type_without_a_zero_is_zero(self, tag: str) -> None:
        src, dst = MemoryDesc((3, 21, 5, 5), "e8m0", "nchw"), MemoryDesc((3, 21, 5, 5), "f32", tag)
        got = check(src, dst, content=np.full(1575, 127, np.uint8))  # code 0 of e8m0 is 2^-127
        assert np.unique(got.view(np.float32), return_counts=True)[1][1] == 1575


class TestNibbles:
    """4-bit elements in any layout whose strides allow them."""

    @settings(max_examples=50)
    @given(nibble_problems(), st.sampled_from(["upper", "lower"]))
    def test_any_layouts(self, pair: tuple[MemoryDesc, MemoryDesc], flush: Literal["upper", "lower"]) -> None:
        check(*pair, flush)

    @pytest.mark.parametrize("types", [("s4", "s4"), ("f4_e2m1", "f32"), ("bf16", "u4")], ids="-".join)
    @pytest.mark.parametrize(
        ("src", "dst", "dims"),
        [
            ("ab", "ba", (66, 130)),
            ("ab", "BA16a64b4a", (70, 130)),
            ("BA16a64b4a", "ab", (70, 130)),
            ("abcd", "ABcd16b16a", (33, 18, 3, 4)),
            ("abcd", "acdb", (2, 18, 5, 6)),
            ("aBcd8b", "aBcd12b", (2, 50, 3, 4)),
        ],
    )
    def test_registers_of_bytes(self, src: str, dst: str, dims: tuple[int, ...], types: tuple[str, str]) -> None:
        one, two = MemoryDesc(dims, types[0], src), MemoryDesc(dims, types[1], dst)
        assert lanes_of(one, two) > 1
        check(one, two)

    @pytest.mark.parametrize(("offset", "lanes"), [(0, 64), (16, 64), (5, 1)])
    def test_a_part_that_begins_inside_a_byte_is_moved_one_by_one(self, offset: int, lanes: int) -> None:
        part = MemoryDesc((8, 256), "u4").submemory((8, 128), (0, offset))
        for pair in ((part, MemoryDesc((8, 128), "u4")), (MemoryDesc((8, 128), "f32"), part), (part, part)):
            assert lanes_of(*pair) <= lanes
            check(*pair)

    def test_strides_that_are_odd(self) -> None:
        # A view that no constructor makes: rows of 3 elements, every other row begins inside a byte.
        rows = MemoryDesc((4, 6), "s4").reshape((8, 3))
        assert rows.strides == (3, 1)
        for other in (MemoryDesc((8, 3), "s4", "ba"), MemoryDesc((8, 3), "f32")):
            check(rows, other)
            check(other, rows)

    def test_one_thread_writes_elements_one_by_one(self) -> None:
        # Rows begin inside bytes, which two threads would both change.
        rows = MemoryDesc((1001, 2002), "u4").reshape((2002, 1001))
        check(MemoryDesc(rows.dims, "u8"), rows)

    def test_threads_write_whole_bytes(self) -> None:
        check(MemoryDesc((2002, 1001), "u4", "ba"), MemoryDesc((2002, 1001), "u4", "Ba4b"))


def lanes_of(src: MemoryDesc, dst: MemoryDesc) -> int:
    plan = compile_reorder(src, dst).plan
    assert plan is not None
    return plan.kernel.lanes


@pytest.mark.parametrize("lane", [0, 15, 16, 31, 33])
@pytest.mark.parametrize("count", [16, 32, 64, 100])
def test_a_subnormal_among_normal_numbers_stays_in_bf16(count: int, lane: int) -> None:
    # The instruction for bf16 would flush it to zero.
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    for subnormal in (0x00018000, 0x80018001, 0x007FFFFF, 1):
        codes = values.view(np.uint32).copy()
        codes[lane % count] = subnormal
        converted(codes, "f32", "bf16")


class TestOtherJudges:
    @pytest.mark.parametrize("dst", ["bf16", "f16", "f8_e5m2", "f8_e4m3", "f4_e2m1"])
    def test_numpy_and_ml_dtypes_round_the_same_way(self, dst: str) -> None:
        codes = edge_codes("f32")
        codes = codes[~np.isnan(codes.view(np.float32))]
        with np.errstate(over="ignore"):
            wanted = codes.view(np.float32).astype(DATA_TYPES[dst].dtype)
        require_equal(codes, converted(codes, "f32", dst), unsigned(wanted))

    @pytest.mark.parametrize("src", sorted({*DATA_TYPES} - {"f32", "f64", "s64"}))
    def test_numpy_and_ml_dtypes_widen_to_the_same_numbers(self, src: str) -> None:
        codes = edge_codes(src)
        values = (codes ^ 8) - 8 if src == "s4" else codes
        wanted = values.view(DATA_TYPES[src].dtype).astype(np.float32)
        got = converted(codes, src, "f32").view(np.float32)
        assert np.array_equal(got, wanted, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(wanted)) or src == "e8m0"

    @pytest.mark.parametrize(
        ("src", "dst"), [(s, d) for s in ("s8", "u8", "s32", "s64") for d in ("s8", "u8", "s32") if s != d]
    )
    def test_integers_are_clipped(self, src: str, dst: str) -> None:
        codes, kind = edge_codes(src), DATA_TYPES[dst]
        values = codes.view(DATA_TYPES[src].dtype).astype(np.int64)
        wanted = np.clip(values, int(kind.lowest), int(kind.highest)).astype(kind.dtype)
        require_equal(codes, converted(codes, src, dst), unsigned(wanted))

    @pytest.mark.skipif(onednn.why_unavailable() is not None, reason=str(onednn.why_unavailable()))
    @pytest.mark.parametrize(("src", "dst"), AS_ONEDNN)
    def test_onednn_converts_the_same_way(self, src: str, dst: str) -> None:
        codes, kind = edge_codes(src), DATA_TYPES[dst]
        if not all(onednn.knows(DATA_TYPES[name].code) for name in (src, dst)):
            pytest.skip("this oneDNN does not know the type")
        if src == "f32":
            magnitudes = codes & 0x7FFFFFFF
            codes = codes[(magnitudes == 0) | (magnitudes >= 0x00800000) & (magnitudes <= 0x7F800000)]
        codes = np.concatenate([codes, codes[: -codes.size % 16]]).reshape(-1, 16)
        one, two = MemoryDesc(codes.shape, src, "ab"), MemoryDesc(codes.shape, dst, "ba")
        theirs = np.zeros(codes.size, f"u{kind.itemsize}")
        try:
            onednn.reorder(onednn.mirror(one), codes.ctypes.data, onednn.mirror(two), theirs.ctypes.data)
        except onednn.Refused:
            pytest.skip("this oneDNN has no such reorder")
        ours = check(one, two, content=in_memory(one, codes)).view(theirs.dtype)
        inputs = codes.T.ravel()
        if kind.kind == "float" and dst != "e8m0":
            with np.errstate(invalid="ignore"):
                is_nan, is_their_nan = (np.isnan(side.view(kind.dtype).astype(np.float64)) for side in (ours, theirs))
            assert (is_nan == is_their_nan).all()
            # Its generic code adds a zero point of 0 to -0.0.
            kept = ~is_nan & ((ours | theirs) != 1 << kind.bits - 1)
            inputs, ours, theirs = inputs[kept], ours[kept], theirs[kept]
        require_equal(inputs, ours, theirs)
