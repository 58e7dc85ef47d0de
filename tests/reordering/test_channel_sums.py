"""Compiled sums of weights per channel, for every register width and between guard pages."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from inlay.descriptor import MemoryDesc
from inlay.layout import Axis, Digit, Layout
from inlay.reordering.compensation import build_channel_sums
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import host_target
from tests.support.guarded_buffers import GuardedBuffer

WIDTHS = [width for width in (16, 32, 64) if width <= host_target().vector_bytes]


def part_of_blocks(dim: int, *blocks: int) -> MemoryDesc:
    """Return weights of `dim` x 3 whose first axis ends inside a block of 16, or of the given sizes."""
    digits: list[Digit] = []
    stride = 1
    for extent in reversed(blocks or (16,)):
        digits.insert(0, Digit(extent, 5 * stride))
        stride *= extent
    return MemoryDesc.from_layout(Layout((dim, 3), (Axis(15 * stride, tuple(digits)), Axis(5 * stride))), "s8")


LAYOUTS = {
    "4 neighbors": (MemoryDesc((70, 37, 3, 3), "s8", "OIhw4i16o4i"), 0b1),
    "2 neighbors": (MemoryDesc((16, 9, 3), "s8", "OIw8i16o2i"), 0b1),
    "no neighbors": (MemoryDesc((64, 16, 3, 3), "s8", "OIhw16i16o"), 0b1),
    "channels in a row": (MemoryDesc((100, 7, 3, 5), "s8", "hwio"), 0b1),
    "depthwise": (MemoryDesc((40, 1, 1, 3, 3), "s8", "Goihw16g"), 0b11),
    "two axes kept, apart in memory": (MemoryDesc((4, 8, 3, 3, 3), "s8", "hwigo"), 0b11),
    "rows of 27": (MemoryDesc((5, 3, 3, 3), "s8", "oihw"), 0b1),
    "rows of 576": (MemoryDesc((5, 64, 3, 3), "s8", "oihw"), 0b1),
    "one number": (MemoryDesc((1, 5), "s8", "ab"), 0b1),
    "a number for each weight": (MemoryDesc((9, 70), "s8", "ab"), 0b11),
    "strides with gaps": (MemoryDesc((6, 8, 4), "s8", strides=(100, 11, 2)), 0b101),
    "half of a block": (part_of_blocks(9), 0b1),
    "a block and a half": (part_of_blocks(25), 0b1),
    "a block and a half, summed": (part_of_blocks(25), 0b10),
    "blocks in blocks, cut off": (part_of_blocks(39, 4, 8), 0b11),
    "more than two threads share": (MemoryDesc((96, 128, 9, 17), "s8", "OIhw4i16o4i"), 0b1),
}


def channel_sums(weights: npt.NDArray[Any], desc: MemoryDesc, mask: int) -> npt.NDArray[np.int64]:
    """Return the sums of weights along all axes but those of the mask, with zeros for padding."""
    kept = [axis for axis in range(weights.ndim) if mask >> axis & 1]
    sums: npt.NDArray[np.int64] = weights.sum(tuple({*range(weights.ndim)} - {*kept}), np.int64)
    return np.pad(sums, [(0, desc.padded_dims[axis] - desc.dims[axis]) for axis in kept])


@pytest.mark.parametrize("flush", ["upper", "lower"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_sums_are_numpys(name: str, width: int, flush: Literal["upper", "lower"]) -> None:
    desc, mask = LAYOUTS[name]
    weights = np.random.default_rng(3).integers(-128, 128, desc.dims).astype(np.int8)
    buffer = GuardedBuffer(desc.size, flush)
    reference_reorder(MemoryDesc(desc.dims, "s8"), weights.view(np.uint8).ravel(), desc, buffer.bytes)
    buffer.seal()
    target = replace(host_target(), vector_bytes=width)
    found = build_channel_sums(desc.require_layout("test")[0], 0, mask, target).compute(buffer.address)
    assert found.dtype == np.int32
    assert found.tolist() == channel_sums(weights, desc, mask).tolist()


def test_sums_wrap_around() -> None:
    weights = np.full((1, (1 << 24) + 1), -128, np.int8)
    layout, _ = MemoryDesc(weights.shape, "s8", "ab").require_layout("reorder")
    assert build_channel_sums(layout, 0, 0b1, host_target()).compute(weights.ctypes.data).tolist() == [(1 << 31) - 128]
