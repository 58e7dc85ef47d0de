"""Find the layout of a packer that is known only as a black box, and check it: `python examples/infer_packer.py`."""

import numpy as np
import numpy.typing as npt

import inlay

DIMS = (2, 17, 5, 4)


def pack(image: npt.NDArray[np.float32], buffer: npt.NDArray[np.float32]) -> None:
    """Write channels in blocks of 8, behind a header of 16 elements."""
    blocks = buffer[16:].reshape(2, 3, 5, 4, 8)
    blocks[:] = np.pad(image, [(0, 0), (0, 7), (0, 0), (0, 0)]).reshape(2, 3, 8, 5, 4).transpose(0, 1, 3, 4, 2)


def main() -> None:
    """Infer the layout, verify it, and verify a wrong guess."""
    found = inlay.infer(pack, DIMS, "f32", length=16 + 2 * 24 * 5 * 4)
    print(found)
    assert isinstance(found, inlay.InferredLayout)
    print(inlay.verify(found.desc, pack, length=found.length))
    print(inlay.verify(inlay.MemoryDesc(DIMS, "f32", "nhwc"), pack, length=found.length))


if __name__ == "__main__":
    main()
