"""Memory: a descriptor together with the bytes it describes, and the moves between memories.

A `Memory` wraps any buffer without a copy, or allocates its own; `pack` moves a logical array into a format, `unpack`
brings it back, `reorder` moves one memory into another format, and a `Reorder` is such a move compiled once for many
calls:

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = np.arange(17 * 4, dtype=np.float32).reshape(1, 17, 2, 2)
    >>> packed = pack(image, "nChw8c")
    >>> packed.desc.padded_dims
    (1, 24, 2, 2)
    >>> np.array_equal(packed.unpack(), image)
    True

Buffers are checked once, when wrapped, against everything the layout can reach; moves then check in microseconds that
both sides are what was compiled and do not lie on one another. Nothing outside elements and padding is ever written.

The modules in the order that data flows:

    buffers        a caller's bytes and our own: elements, values of 4 bits, host scalars, the buffers of sparse memory
    moves          what runs between two addresses
    entries        what sparse memory stores, and conversions from and to it
    memory         `Memory`, and NumPy views by a layout
    reordered      from logical arrays to memory, and from memory to memory
    padding        padding lanes in a buffer, found and made zero
    padded         the padding of a `Memory`: checked, made zero, and kept zero by functions
    sparse         CSR and COO from dense arrays and back, SciPy's and torch's
    axis_orders    how frameworks order axes, and what oneDNN calls them
    frameworks     arrays of NumPy, PyTorch and JAX as `Memory`, and back
"""

from inlay.memory.memory import Memory, as_strided
from inlay.memory.padded import check_padding, map_padded, zero_padding
from inlay.memory.reordered import Reorder, pack, reorder

__all__ = ["Memory", "Reorder", "as_strided", "check_padding", "map_padded", "pack", "reorder", "zero_padding"]
