"""Descriptors to draw: one of each kind that a picture has to cope with, and a strategy of small ones."""

from math import prod

from hypothesis import assume
from hypothesis import strategies as st

from inlay import RUNTIME, MemoryDesc
from inlay.render.legend import axis_names, nearest_tag
from inlay.render.scene import SpaceLimits
from inlay.testing import descriptors, shapes

EVERYTHING = SpaceLimits(width=10**6, plane_rows=10**6, grid_lines=10**7, strip_rows=10**6)

NCHW8C = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
SPECIMENS = {
    "nchw": MemoryDesc((2, 16, 5, 4), "f32", "nchw"),
    "nhwc": MemoryDesc((2, 16, 5, 4), "f32", "nhwc"),
    "chwn": MemoryDesc((2, 16, 5, 4), "f32", "chwn"),
    "zero-padding": NCHW8C,
    "strided": MemoryDesc((4, 6), "bf16", strides=(8, 1)),
    "matrix": MemoryDesc((30, 50), "bf16", "AB16b16a"),
    "vnni": MemoryDesc((32, 24), "bf16", "BA16b16a2b"),
    "pointwise-weights": MemoryDesc((64, 64, 1, 1), "bf16", "OIhw16i16o"),
    "free-digits": MemoryDesc((128, 8), "f8_e4m3", pattern="(m m4 m32) (k k4) -> m k m32 m4 k4"),
    "broadcast": MemoryDesc((4, 6), "f32", strides=(0, 1)),
    "submemory": NCHW8C.submemory((1, 9, 5, 4), (1, 8, 0, 0)),
    "partial-block": NCHW8C.submemory((1, 3, 2, 2), (1, 8, 1, 1)),
    "half-bytes": MemoryDesc((5,), "s4", "a"),
    "far-apart": MemoryDesc((4, 6), "f32", strides=(10**6, 1)),
    "large": MemoryDesc((2**15, 2**15, 3, 7), "u8", "nChw16c"),
    "large-matrix": MemoryDesc((100_000, 100_000), "f32", "ab"),
    "twelve-axes": MemoryDesc((2,) * 12, "f32", "abcdefghijkl"),
    "one": MemoryDesc((1,), "f32", "a"),
    "no-elements": MemoryDesc((2, 0, 3), "f32", "abc"),
    "zero": MemoryDesc(),
    "any": MemoryDesc((2, 3), "f32", "any"),
    "host-scalar": MemoryDesc.host_scalar("f32"),
    "runtime": MemoryDesc((RUNTIME, 3), "f32", "ab"),
    "csr": MemoryDesc.csr((3, 4), "f32", 2),
    "coo": MemoryDesc.coo((3, 4, 5), "bf16", 2, "s64"),
    "packed": MemoryDesc.packed((64, 60), "s8", 960, "BA16a64b4a"),
    "packed-any": MemoryDesc.packed((64, 64), "s8", 1024),
}


def names_of(desc: MemoryDesc) -> tuple[str, ...]:
    return axis_names(desc.ndims, nearest_tag(desc))


@st.composite
def small(draw: st.DrawFn) -> MemoryDesc:
    """Descriptors with few enough elements to be drawn whole."""
    desc = draw(descriptors(draw(shapes(max_size=60, zero=False)), broadcast=draw(st.booleans())))
    low, high = desc.require_layout("a drawing")[0].span
    assume(prod(desc.padded_dims) <= 2000 and high - low <= 5000)
    return desc
