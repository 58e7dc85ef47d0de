"""Compiled reorders with attributes: they equal the reference and change nothing else.

Layouts, types and attributes are random. A NaN that was computed may be any NaN.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
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
from tests.reordering.test_reorder import noise
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.soak_case import Case, run_case

WHOLE = [name for name, t in DATA_TYPES.items() if not t.is_sub_byte]
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def check(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes, **circumstances: Any) -> None:
    """Run the compiled reorder between guard pages and compare it with the reference."""
    compile_reorder(src, dst, attributes)  # raises an error where Reorder would call the reference
    run_case(Case(src, dst, attributes, **circumstances))


@MANY
@given(reorder_problems(convert=True), st.data(), st.integers(0, 99))
def test_compiled_equals_reference(pair: tuple[MemoryDesc, MemoryDesc], data: st.DataObject, seed: int) -> None:
    with suppress(Unimplemented):  # groups that cut through blocks
        check(*pair, data.draw(attributes(*pair)), seed=seed)


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
        if computed.src_zero_points is None or "float" not in (DATA_TYPES[src].kind, DATA_TYPES[dst].kind):
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
    computed = Attributes(src_scales=Scales(mask), dst_scales=Scales(0b0010))
    for types in (("f32", "s8"), ("u8", "f32"), ("f32", "f32"), ("s32", "s32")):
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


def test_streaming_stores_with_attributes() -> None:
    dims, there, back = (3, 40, 111, 85), Attributes(src_scales=Scales(0b0010)), Attributes(dst_scales=Scales(0b0010))
    check(MemoryDesc(dims, "f32", "nchw"), MemoryDesc(dims, "s8", "nhwc"), there, streaming=True, threads=2)
    check(MemoryDesc(dims, "u8", "nhwc"), MemoryDesc(dims, "f32", "nchw"), back, streaming=True, threads=2)


def test_threads_bring_their_own_values() -> None:
    src, dst = MemoryDesc((64, 96), "f32", "ab"), MemoryDesc((64, 96), "f32", "ba")
    run = compile_reorder(src, dst, Attributes(src_scales=Scales(0b10))).run
    source = np.ones((64, 96), np.float32)

    def work(seed: int) -> bool:
        scales = np.random.default_rng(seed).uniform(1, 2, (1, 96)).astype(np.float32)
        targets = np.zeros((200, 96, 64), np.float32)
        for target in targets:
            run(source.ctypes.data, target.ctypes.data, {"src_scales": scales})
        return bool((targets == scales.T).all())

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
