"""A `Memory` used as an array: shape, indices and views in any format, zero-copy arrays, files.

Every step compares with the NumPy array that was packed.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import inlay


def main() -> int:
    """Pack an image into a blocked format, and use the memory as the array that it holds."""
    image = np.arange(2 * 32 * 5 * 4, dtype=np.float32).reshape(2, 32, 5, 4)
    memory = inlay.pack(image, "nChw8c")
    print("logical:", memory.shape, memory.dtype, "  stored:", memory.physical().shape, memory.nbytes, "bytes")
    assert memory[1, 20, 4, -1] == image[1, 20, 4, -1]

    channels = memory[:, 8:24]  # whole blocks: a view of the same bytes
    assert np.array_equal(channels.unpack(), image[:, 8:24])
    rows = memory.reshape(2, 32, -1).T  # axes without blocks are joined, and no data moves
    assert np.array_equal(rows.unpack(), image.reshape(2, 32, -1).T)
    print("views:", channels.desc, rows.desc)

    try:
        np.asarray(memory)
    except inlay.InvalidArguments as refusal:
        print("refused:", refusal)
    nhwc = inlay.reorder(image, "nhwc")
    array = np.asarray(nhwc)  # one stride for each axis: a view in logical order
    array[0, 31, 0, 0] = -1
    assert nhwc[0, 31, 0, 0] == -1
    print("zero-copy:", array.shape, array.strides)

    offset = memory.desc.offset((1, 20, 4, 3))
    print("offset", offset, "is", memory.desc.coordinate(offset))
    assert memory.desc.coordinate(offset) == (1, 20, 4, 3)

    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "image.npz")
        loaded = inlay.Memory.load(Path(folder) / "image.npz")
    assert loaded.desc == memory.desc
    assert np.array_equal(loaded.unpack(), image)
    print("All results are equal.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
