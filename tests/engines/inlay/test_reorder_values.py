"""Values of scales and zero points of reorders: each call reads them anew, wherever they are."""

import numpy as np
import pytest

from inlay import MemoryDesc
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Operation, get_engine
from inlay.reordering.attributes import Scales, ZeroPoints

INTEGERS = np.random.default_rng(4).integers(0, 256, (5, 6)).astype(np.uint8)


@pytest.mark.parametrize("mask", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [1, 3])
def test_each_call_reads_the_values_anew(mask: int, step: int) -> None:
    shape = tuple(n if mask >> axis & 1 else 1 for axis, n in enumerate(INTEGERS.shape))
    count = shape[0] * shape[1]
    descs = {"src": MemoryDesc(INTEGERS.shape, "u8", "ab"), "dst": MemoryDesc(INTEGERS.shape, "f32", "ba")}
    attributes = PrimitiveAttributes(scales={"src": Scales(mask=mask)}, zero_points={"src": ZeroPoints()})
    made = get_engine("inlay").create(Operation("reorder", "forward_inference", descs, {}, attributes))
    scales = Memory(MemoryDesc((count,), "f32", strides=(step,)))
    zero_point, dst = Memory(MemoryDesc((1,), "s32", "a")), Memory(descs["dst"])
    memories = {"src": pack(INTEGERS, "ab"), "dst": dst, "src_scales": scales, "src_zero_points": zero_point}
    run = made.bind(memories)
    for zero in (3, -7):
        numbers = np.random.default_rng(zero + 9).uniform(0.1, 2, count).astype(np.float32)
        scales.buffer.view(np.float32)[::step] = numbers
        zero_point.buffer.view(np.int32)[0] = zero
        run()
        expected = (INTEGERS.astype(np.float32) - zero) * numbers.reshape(shape)
        np.testing.assert_allclose(dst.unpack(), expected, rtol=1e-6)
