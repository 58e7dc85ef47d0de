"""Reorders with zero points, which oneDNN 3.2 ignores for elements in short runs: refused, and the others are right."""

import numpy as np
import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn import OnednnEngine
from inlay.engines.onednn.defects import find_defect
from inlay.memory import Memory, pack
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import Operation
from inlay.reordering.attributes import Scales, ZeroPoints
from tests.oracles import onednn as oracle

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

SEPARATED = {
    "transposed": ((16, 65), (1, 16), (65, 1), True),
    "in the same order": ((16, 65), (1, 16), (1, 16), False),
    "rows with gaps": ((16, 65), (65, 1), (80, 1), True),
    "from rows with gaps": ((16, 65), (80, 1), (80, 1), True),
    "rows of 64 with gaps": ((16, 64), (64, 1), (80, 1), False),
    "rows of 5 in another order": ((4, 3, 5), (15, 5, 1), (5, 20, 1), True),
    "rows of 8 in another order": ((4, 3, 8), (24, 8, 1), (8, 32, 1), False),
    "a slice of channels": ((2, 17, 5, 1), (85, 5, 1, 1), (170, 5, 1, 1), True),
    "one row": ((1, 65), (65, 1), (80, 1), False),
}
"""Dims, strides of src and dst, and whether a reorder with zero points is refused."""


@pytest.mark.parametrize("case", SEPARATED)
@pytest.mark.parametrize("side", ["src", "dst"])
def test_reorders_with_zero_points_are_refused_if_they_separate_elements(case: str, side: str) -> None:
    dims, src, dst, is_refused = SEPARATED[case]
    attributes = PrimitiveAttributes(zero_points={side: ZeroPoints()})
    descs = {"src": MemoryDesc(dims, "u8", strides=src), "dst": MemoryDesc(dims, "s8", strides=dst)}
    defect = find_defect((3, 2, 0), Operation("reorder", "forward_inference", descs, attributes=attributes))
    assert defect == ("correct reorder with zero points that separates elements" if is_refused else None)


@pytest.mark.parametrize(
    ("channels", "src", "dst", "is_refused"),
    [
        (32, "nhwc", "nChw16c", False),
        (20, "nhwc", "nChw16c", True),
        (32, "nChw4c", "nhwc", True),
        (32, "nchw", "nChw16c", True),
        (20, "nChw4c", "nChw4c", False),
    ],
)
def test_reorders_of_blocks_with_zero_points_move_runs_of_eight(
    channels: int, src: str, dst: str, is_refused: bool
) -> None:
    attributes = PrimitiveAttributes(zero_points={"dst": ZeroPoints()})
    descs = {"src": MemoryDesc((2, channels, 3, 3), "u8", src), "dst": MemoryDesc((2, channels, 3, 3), "s8", dst)}
    defect = find_defect((3, 2, 0), Operation("reorder", "forward_inference", descs, attributes=attributes))
    assert (defect is not None) == is_refused


@needs_onednn
@pytest.mark.parametrize("case", [case for case, (*_, is_refused) in SEPARATED.items() if not is_refused])
def test_other_reorders_with_zero_points_are_right(case: str, engine: OnednnEngine) -> None:
    dims, src, dst, _ = SEPARATED[case]
    attributes = PrimitiveAttributes(scales={"dst": Scales()}, zero_points={"dst": ZeroPoints()})
    descs = MemoryDesc(dims, "f32", strides=src), MemoryDesc(dims, "u8", strides=dst)
    reorder = p.Reorder(*descs, attributes=attributes, engine=engine)
    x = 2 * np.random.default_rng(3).integers(-150, 300, dims).astype(np.float32)  # never halfway between integers
    found = reorder(
        src=pack(x, descs[0]),
        dst_scales=pack(np.array([2], np.float32), MemoryDesc((1,), "f32")),
        dst_zero_points=pack(np.array([7], np.int32), MemoryDesc((1,), "s32")),
        dst=Memory(descs[1]),
    )
    assert np.array_equal(found.unpack(), np.clip(x / 2 + 7, 0, 255))
