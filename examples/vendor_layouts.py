"""The dictionary of layouts: a weight packed for Marlin by name, checked, unpacked, and one layout under all its names.

python examples/vendor_layouts.py
"""

import numpy as np

import inlay
from inlay.notation.dictionary import list_equivalent


def main() -> None:
    """Pack 4-bit weights as Marlin's kernel reads them, and print what the dictionary knows."""
    row = inlay.named("marlin:int4")
    print(row)

    weights = np.random.default_rng(0).integers(0, 16, (128, 256), np.uint8)
    desc = inlay.MemoryDesc(weights.shape, row.data_types[0], pattern=row.pattern)
    packed = inlay.pack(weights, desc, "u4")
    print(f"\npacked {weights.size} weights into {packed.desc.size} bytes")

    # The nibble of one weight is where the row says.
    k, n = 77, 201
    offset = desc.offset((k, n))
    nibble = np.frombuffer(packed.buffer, np.uint8)[offset // 2] >> 4 * (offset % 2) & 15
    print(f"weight ({k}, {n}) is nibble {offset}: {nibble} == {weights[k, n]}")
    assert nibble == weights[k, n]
    assert np.array_equal(np.asarray(packed.unpack()).astype(np.uint8), weights)

    print("\none layout, all names:")
    print(list_equivalent("cudnn:NCHW_VECT_C_x32"))


if __name__ == "__main__":
    main()
