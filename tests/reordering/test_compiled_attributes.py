"""Compiled reorders with attributes: they equal the reference and change nothing else.

Layouts, types and attributes are random. Source and destination are between guard pages, and so are the values of
attributes: code may read beyond their end only in the copies that a reorder makes. A NaN that was computed may be any
NaN.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.machine import MemoryModel
from inlay.reordering import compile_reorder, planning
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.reference import reference_reorder
from inlay.testing import attributes, reorder_problems
from tests.reordering.test_reorder import noise, span_bytes
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.guarded_buffers import GuardedBuffer, stored_bytes

Bytes = npt.NDArray[np.uint8]
WHOLE = [name for name, t in DATA_TYPES.items() if not t.is_sub_byte]
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def contents(desc: MemoryDesc, seed: int) -> Bytes:
    """Return elements of which half are any bits, and half are numbers that no conversion clamps."""
    _, data_type = desc.require_layout("test")
    wild = noise(span_bytes(desc), seed)
    count = wild.size // data_type.itemsize
    numbers = np.random.default_rng(seed).integers(0, 100, count) * 0.5
    tame = numbers.astype(data_type.dtype).view(f"u{data_type.itemsize}")
    wild[: count * data_type.itemsize].view(tame.dtype)[::2] = tame[::2]
    return wild


def check(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes, seed: int = 0) -> None:
    """Run the compiled reorder between guard pages and compare it with the reference."""
    values = values_for(attributes, src.dims, seed)
    source = GuardedBuffer(span_bytes(src), "upper", 8)
    target = GuardedBuffer(span_bytes(dst), "upper", 8)
    source.bytes[:] = contents(src, seed)
    before = contents(dst, seed + 1)
    target.bytes[:] = before
    expected = before.copy()
    reference_reorder(src, source.bytes, dst, expected, attributes, view_codes(values), seed=seed)
    source.seal()
    compile_reorder(src, dst, attributes).run(source.address, target.address, values, seed)
    foreign = stored_bytes(dst, before.size) == 0
    assert (target.bytes[foreign] == before[foreign]).all(), "a byte outside elements and padding changed"
    assert target.gap_is_untouched
    assert_same(dst, target.bytes, expected)


@MANY
@given(reorder_problems(convert=True), st.data(), st.integers(0, 99))
def test_compiled_equals_reference(pair: tuple[MemoryDesc, MemoryDesc], data: st.DataObject, seed: int) -> None:
    with suppress(Unimplemented):  # groups that cut through blocks
        check(*pair, data.draw(attributes(*pair)), seed)


@MANY
@given(reorder_problems(convert=True, large=True), st.data())
def test_compiled_equals_reference_on_whole_tiles(pair: tuple[MemoryDesc, MemoryDesc], data: st.DataObject) -> None:
    with suppress(Unimplemented):  # groups that cut through blocks
        check(*pair, data.draw(attributes(*pair)))


ALL = [
    Attributes(src_scales=Scales(0b10), dst_scales=Scales()),
    Attributes(src_scales=Scales(0b11, (16, 4)), sum=0.5),
    Attributes(src_zero_points=ZeroPoints(0b01), dst_zero_points=ZeroPoints(0b10)),
    Attributes(rounding_mode="stochastic"),
]


PAIRS = [(src, dst) for src in WHOLE for dst in WHOLE]
AT_ONCE = {(a, b) for one in WHOLE for a, b in ((one, "f32"), ("f32", one), (one, one), ("s32", one))}


@pytest.mark.parametrize(
    ("src", "dst"), [pytest.param(*pair, marks=[] if pair in AT_ONCE else [pytest.mark.heavy]) for pair in PAIRS]
)
def test_every_pair_of_types(src: str, dst: str) -> None:
    for computed in ALL:
        if computed.src_zero_points is not None and "float" in (DATA_TYPES[src].kind, DATA_TYPES[dst].kind):
            continue
        check(MemoryDesc((48, 36), src, "ab"), MemoryDesc((48, 36), dst, "ba"), computed)


FORMATS = [
    ("nchw", "nhwc", (2, 17, 5, 7)),
    ("nhwc", "nchw", (2, 3, 33, 32)),
    ("nchw", "nChw16c", (2, 35, 9, 8)),
    ("nChw16c", "nchw", (2, 35, 9, 8)),
    ("nChw8c", "nChw16c", (2, 20, 3, 3)),
    ("oihw", "OIhw4i16o4i", (33, 20, 3, 3)),
    ("aBcd8b", "aBcd12b", (2, 50, 3, 5)),
]


@pytest.mark.parametrize("mask", [0b0010, 0b1111, 0b1101, 0b0001])
@pytest.mark.parametrize(("src", "dst", "dims"), FORMATS, ids=[f"{s}-{d}" for s, d, _ in FORMATS])
def test_formats(src: str, dst: str, dims: tuple[int, ...], mask: int) -> None:
    for types in (("f32", "s8"), ("u8", "f32"), ("f32", "f32"), ("s32", "s32")):
        computed = Attributes(src_scales=Scales(mask), dst_scales=Scales(0b0010))
        check(MemoryDesc(dims, types[0], src), MemoryDesc(dims, types[1], dst), computed)


@pytest.mark.parametrize("group", [1, 2, 16, 32, 48, 96])
@pytest.mark.parametrize(("src", "dst"), [("ab", "ba"), ("ab", "BA16a64b4a"), ("ba", "ab"), ("AB16b16a", "ab")])
def test_groups(src: str, dst: str, group: int) -> None:
    computed = Attributes(src_scales=Scales(0b11, (group, 1)), src_zero_points=ZeroPoints(0b11, (group, 2)))
    check(MemoryDesc((96, 70), "u8", src), MemoryDesc((96, 70), "bf16", dst), computed)


@pytest.mark.parametrize(
    ("scales", "points"), [("f32", "s32"), ("bf16", "s8"), ("f16", "u8"), ("e8m0", "s4"), ("f8_e4m3", "u4")]
)
def test_values_of_every_type(scales: str, points: str) -> None:
    computed = Attributes(src_scales=Scales(0b10, (), scales), src_zero_points=ZeroPoints(0b01, (), points))
    check(MemoryDesc((20, 36), "s8", "ab"), MemoryDesc((20, 36), "f32", "ba"), computed)


def test_groups_that_cut_through_blocks_are_left_to_the_reference() -> None:
    src, dst = MemoryDesc((60, 8), "u8", "ab"), MemoryDesc((60, 8), "f32", "Ab4a")
    with pytest.raises(Unimplemented) as caught:
        compile_reorder(src, dst, Attributes(src_scales=Scales(0b11, (6, 1))))
    assert str(caught.value) == "groups of 6 do not fit the blocks of both sides along their axis"
    blocked = MemoryDesc((60, 8), "u8", "Ab4a")
    with pytest.raises(Unimplemented) as caught:
        compile_reorder(blocked, MemoryDesc((60, 8), "f32", "ab"), Attributes(src_scales=Scales(0b11, (6, 1))))
    assert str(caught.value) == "groups of 6 do not fit the blocks of 4 along their axis"


def test_tensors_larger_than_the_caches() -> None:
    dims = (3, 40, 333, 257)
    check(MemoryDesc(dims, "f32", "nchw"), MemoryDesc(dims, "s8", "nhwc"), Attributes(src_scales=Scales(0b0010)))
    check(MemoryDesc(dims, "u8", "nhwc"), MemoryDesc(dims, "f32", "nchw"), Attributes(dst_scales=Scales(0b0010)))


def test_threads_bring_their_own_values() -> None:
    src, dst = MemoryDesc((64, 96), "f32", "ab"), MemoryDesc((64, 96), "f32", "ba")
    run = compile_reorder(src, dst, Attributes(src_scales=Scales(0b10))).run
    source = np.ones((64, 96), np.float32)

    def work(seed: int) -> bool:
        scales = np.random.default_rng(seed).uniform(1, 2, (1, 96)).astype(np.float32)
        right = True
        for _ in range(200):
            target = np.zeros((96, 64), np.float32)
            run(source.ctypes.data, target.ctypes.data, {"src_scales": scales})
            right &= bool((target == scales.T).all())
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("begin", [0, 4, 20, 32, 60])
@pytest.mark.parametrize("dst_tag", ["ba", "ab", "AB16b16a", "aB16b"])
def test_a_destination_that_begins_anywhere_is_computed_as_one_that_begins_at_a_line(
    dst_tag: str, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    src, dst = MemoryDesc((96, 128), "f32", "ab"), MemoryDesc((96, 128), "f32", dst_tag)
    scaled = Attributes(src_scales=Scales(mask=0b10))
    x, values = noise(src.size, 1), values_for(scaled, src.dims, 2)
    room = noise(dst.size + 128, 3)
    at = -room.ctypes.data % 64 + begin
    expected = room.copy()
    reference_reorder(src, x, dst, expected[at : at + dst.size], scaled, view_codes(values))
    reorder = compile_reorder(src, dst, scaled)
    reorder.run(x.ctypes.data, room.ctypes.data + at, values)
    assert_same(dst, room[at : at + dst.size], expected[at : at + dst.size])
    assert np.array_equal(room[:at], expected[:at])
    assert np.array_equal(room[at + dst.size :], expected[at + dst.size :])
