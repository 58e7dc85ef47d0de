"""The numbers behind int8 weights: what a convolution adds to make up for signed sources and their zero points.

For each channel, an entry of the axes in the mask, with q the weights as they are stored:

    flag 1 (s8s8)                -128 * sum of q
    flag 8 (asymmetric source)     -1 * sum of q

as s32 (sums beyond it wrap), 0 for channels of padding, one after the other behind the elements.

Source: oneDNN, `memory_extra_desc_t` and the reorders of weights that fill it.
"""

from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8
from inlay.reordering.reference.elements import Bytes
from inlay.reordering.reference.numbers import Codes

_WEIGHTS = {S8S8: -128, ASYMMETRIC_SRC: -1}


def write_compensation(desc: MemoryDesc, buffer: Bytes, codes: Codes) -> None:
    """Write the numbers that the extras of `desc` want behind its elements, whose codes are given."""
    sizes = desc.extras.buffer_sizes(desc.padded_dims)
    at = desc.size - sum(sizes.values())
    masks = {S8S8: desc.extras.compensation_mask, ASYMMETRIC_SRC: desc.extras.asymmetric_mask}
    for flag, nbytes in sizes.items():
        if prod(desc.dims):
            numbers = _sums(desc, codes, masks[flag]) * _WEIGHTS[flag]
            buffer[at : at + nbytes] = numbers.astype(np.int32).ravel().view(np.uint8)
        at += nbytes


def _sums(desc: MemoryDesc, codes: Codes, mask: int) -> npt.NDArray[np.int64]:
    """The sum of the weights of each channel; 0 in channels of padding."""
    kept = [axis for axis in range(desc.ndims) if mask >> axis & 1]
    others = tuple(axis for axis in range(desc.ndims) if axis not in kept)
    sums = np.zeros([desc.padded_dims[axis] for axis in kept], np.int64)
    weights = codes.astype(np.uint8).view(np.int8).reshape(codes.shape)
    sums[tuple(slice(desc.dims[axis]) for axis in kept)] = weights.sum(others, np.int64)
    return sums
