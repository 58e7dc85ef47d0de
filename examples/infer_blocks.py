"""Find the format of a packer of quantized blocks, and the first wrong number: `python examples/infer_blocks.py`."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

import inlay

DIMS = (2, 64)
Arrays = Mapping[str, npt.NDArray[np.uint8]]


def pack(arrays: Arrays) -> npt.NDArray[np.uint8]:
    """Write the scale of 32 numbers, then the numbers, two in a byte."""
    low, high = arrays["q"].reshape(-1, 2, 16).swapaxes(0, 1)
    return np.concatenate([arrays["d"].reshape(-1, 1).view(np.uint8), low | high << 4], axis=1)


def pack_neighbors(arrays: Arrays) -> npt.NDArray[np.uint8]:
    """Pack neighbors into one byte, which is another format."""
    numbers = arrays["quants"].reshape(-1, 32)
    return np.concatenate(
        [arrays["scale"].reshape(-1, 1).view(np.uint8), numbers[:, ::2] | numbers[:, 1::2] << 4], axis=1
    )


def main() -> None:
    """Infer the format, and verify another packer against it."""
    found = inlay.infer(pack, DIMS, streams={"q": ("u4", DIMS), "d": ("f16", (2, 2))})
    print(found)
    assert isinstance(found, inlay.InferredCompound)
    result = inlay.verify(found.desc, pack_neighbors)
    assert not result
    print(f"neighbors in one byte: {result.stream} at {result.coordinate} is wrong in byte {result.byte}")


if __name__ == "__main__":
    main()
