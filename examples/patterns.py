"""Describe a packed buffer in one line: patterns, headers, aligned tiles, CuTe's texts and swizzles.

Run with `python examples/patterns.py`. Every result is checked against a formula written out by hand.
"""

import numpy as np

import inlay


def scales_in_aligned_tiles() -> None:
    """NVFP4's 128x4 tiles of scales, behind a header of 64 bytes, each tile padded to 4 KiB."""
    pattern = "(m m4 m32) (k k4) -> m k m32 m4 k4"
    desc = inlay.MemoryDesc((300, 20), "u8", pattern, offset0=64, alignment=4096)
    scales = np.random.default_rng(0).integers(0, 256, (300, 20), np.uint8)
    packed = inlay.pack(scales, desc)
    m, k = 200, 9
    place = 64 + (m // 128 * 5 + k // 4) * 4096 + m % 32 * 16 + m % 128 // 32 * 4 + k % 4
    assert packed.buffer[place] == scales[m, k]
    assert desc.offset((m, k)) == place
    assert np.array_equal(packed.unpack(), scales)
    print(f"equal  {desc!r}: {packed.buffer.size} bytes")


def tile_of_shared_memory() -> None:
    """A tile of 64 rows of 128 bytes in the 128-byte swizzle of NVIDIA's TMA, in CuTe's notation."""
    rows = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    swizzled = inlay.pack(rows, "Swizzle<3,3,3> o (64,64):(64,1)")
    chunks = swizzled.buffer.view(np.uint16).reshape(64, 8, 8)
    for r in range(64):
        for j in range(8):
            assert np.array_equal(chunks[r, j ^ (r % 8)], rows[r, 8 * j : 8 * j + 8])
    assert np.array_equal(inlay.reorder(swizzled, "ba").unpack(), rows)
    print(f"equal  {swizzled.desc!r}: {swizzled.buffer.size} bytes")


def one_layout_in_every_notation() -> None:
    """The same layout as a format tag, as a pattern with names of the caller, and as CuTe prints it."""
    dims = (2, 17, 5, 4)
    tag = inlay.MemoryDesc(dims, "f32", "nChw8c")
    pattern = inlay.MemoryDesc(dims, "f32", "n (c c8) row col -> n c row col c8")
    cute = inlay.MemoryDesc(dims, "f32", tag.shape_stride)
    assert tag == pattern == cute
    print(f"equal  {tag.spelling}, {pattern.spelling}, {cute.spelling}")


if __name__ == "__main__":
    scales_in_aligned_tiles()
    tile_of_shared_memory()
    one_layout_in_every_notation()
