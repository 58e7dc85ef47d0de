"""The padding contract: Inlay keeps track of what padding holds, and gives zeros to the primitives that need them."""

import sys

import numpy as np

import inlay
from inlay import primitives


def main() -> int:
    """Follow the padding of one image with 17 channels in blocks of 8."""
    image = np.random.default_rng(0).standard_normal((2, 17, 6, 6), np.float32)
    memory = inlay.pack(image, "nChw8c")
    print("packed:         ", memory.padding)

    inlay.map_padded(lambda x: np.maximum(x, 0), memory, include_padding=True)
    print("after relu:     ", memory.padding)
    assert memory.padding == inlay.ZERO
    inlay.map_padded(np.exp, memory, include_padding=True)
    print("after exp:      ", memory.padding)
    assert memory.padding == inlay.Filled(1)
    assert inlay.check_padding(memory, memory.padding).is_clean

    print(str(inlay.check_padding(memory)).splitlines()[0])
    weights = inlay.pack(np.ones((8, 17, 1, 1), np.float32), "OIhw8i8o")
    sums = primitives.Convolution(memory.desc, weights.desc)(src=memory, weights=weights)
    expected = np.exp(np.maximum(image, 0)).sum(axis=1)
    assert np.allclose(sums.unpack()[:, 0], expected, rtol=1e-5)
    print("after a product:", memory.padding)
    assert memory.padding == inlay.ZERO

    inlay.poison_padding(memory)
    print("poisoned:       ", memory.padding)
    assert not inlay.check_padding(memory).is_clean
    assert np.allclose(memory.unpack(), np.exp(np.maximum(image, 0)))
    print("All results are equal.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
