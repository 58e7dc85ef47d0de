"""The error of a quantization: sums over the elements of a box, in f64.

The sums are those of `np.einsum`, which runs on this thread. `np.dot` takes the threads of BLAS for pieces of this
size, and they wait for one another on a busy processor: seconds for what takes milliseconds.
"""

import numpy as np
import numpy.typing as npt

from inlay.storage.operation import BoxCounts

_PIECE = 1 << 16
"""Elements of one piece, so that its f64 numbers fit in the second-level cache."""


def measure_error(values: npt.NDArray[np.float32], quantized: npt.NDArray[np.float32]) -> BoxCounts:
    """Return the squared error, the squares of `values`, and the greatest error of numbers that were quantized.

    >>> measure_error(np.array([3, 4], np.float32), np.array([3, 5], np.float32)).squared_error
    1.0
    """
    squared_error = squared = greatest = 0.0
    first, second = values.reshape(-1), quantized.reshape(-1)
    for begin in range(0, first.size, _PIECE):
        piece = first[begin : begin + _PIECE].astype(np.float64)
        squared += float(np.einsum("i,i->", piece, piece))
        piece -= second[begin : begin + _PIECE]
        squared_error += float(np.einsum("i,i->", piece, piece))
        greatest = max(greatest, float(piece.max()), -float(piece.min()))
    return BoxCounts(squared_error=squared_error, squared=squared, greatest_error=greatest)
