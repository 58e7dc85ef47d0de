"""F(4x4, 3x3): the matrices of the Winograd convolution, the transform of weights, and the words of the call table.

    y = A^T [(G g G^T) * (B^T d B)] A        4x4 results of a 3x3 kernel g, from 6x6 pixels d, by 36 products

The algorithm computes a product of polynomials from their values at six points: 0, 5/8, -5/8, 3/2, -3/2 and infinity.
These points have smaller rounding errors than small integers, and every entry of A and B is exact in a float. Sources:
Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", 2015.

All arguments of the machine code are in a table of 64-bit words, whose indices are `TableWord`.
"""

from enum import IntEnum, auto
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Matrix: TypeAlias = tuple[tuple[float, ...], ...]

OUT = 4
"""Number of results of a tile along each axis."""
KERNEL = 3
"""Number of weights of a kernel along each axis."""
TILE = OUT + KERNEL - 1
"""Number of pixels of a tile along each axis."""
POINTS = TILE * TILE
"""Number of matrix products: one for each pair of points."""
_P, _Q = 0.625, 1.5
_PP, _QQ = _P * _P, _Q * _Q

B: Matrix = (
    (_PP * _QQ, 0.0, -(_PP + _QQ), 0.0, 1.0, 0.0),
    (0.0, -_P * _QQ, -_QQ, _P, 1.0, 0.0),
    (0.0, _P * _QQ, -_QQ, -_P, 1.0, 0.0),
    (0.0, -_Q * _PP, -_PP, _Q, 1.0, 0.0),
    (0.0, _Q * _PP, -_PP, -_Q, 1.0, 0.0),
    (0.0, _PP * _QQ, 0.0, -(_PP + _QQ), 0.0, 1.0),
)
"""B^T, of shape (6, 6): the transform of pixels."""
A: Matrix = tuple((float(i == 0), _P**i, (-_P) ** i, _Q**i, (-_Q) ** i, float(i == OUT - 1)) for i in range(OUT))
"""A^T, of shape (4, 6): the transform to results."""
A_PAIRED: Matrix = tuple(
    (float(i == 0), even * _P**i, odd * _P**i, even * _Q**i, odd * _Q**i, float(i == OUT - 1))
    for i, (even, odd) in enumerate(((1.0, 0.0), (0.0, 1.0)) * (OUT // 2))
)
"""A^T for the output of `emit_pair_sums`: the value at 0, sum and difference of those at 5/8 and -5/8, sum and
difference of those at 3/2 and -3/2, and the value at infinity."""
G: Matrix = (
    (1 / (_PP * _QQ), 0.0, 0.0),
    *(
        tuple(p**k / (2 * p * p * (p * p - q * q)) for k in range(KERNEL))
        for p, q in ((_P, _Q), (-_P, _Q), (_Q, _P), (-_Q, _P))
    ),
    (0.0, 0.0, 1.0),
)
"""G, of shape (6, 3): the transform of weights."""


def transform_weights(weights: npt.NDArray[np.float32], panel: int) -> npt.NDArray[np.float32]:
    """Transform weights of shape (oc, ic, 3, 3) to 36 matrices U, each in panels of `panel` columns.

    Post-condition: the result has one axis of 36 * ic * oc elements. A panel has ic rows of `panel` columns; the last
    one is narrower if `panel` does not divide oc. The transform is computed in f64 and rounded once.
    """
    factors = np.kron(G, G)
    panels = [weights[first : first + panel] for first in range(0, weights.shape[0], panel)]
    columns = np.concatenate([part.transpose(2, 3, 1, 0).reshape(KERNEL * KERNEL, -1) for part in panels], axis=1)
    matrices: npt.NDArray[np.float32] = (factors @ columns.astype(np.float64)).astype(np.float32)
    return matrices.reshape(-1)


class TableWord(IntEnum):
    """Indices of the 64-bit words of the call table; strides and offsets are in bytes."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count

    THREAD_NUM = auto()
    """Address of omp_get_thread_num."""
    NUM_THREADS = auto()
    """Address of omp_get_num_threads."""
    SRC = auto()
    """Address of the source image."""
    DST = auto()
    """Address of the destination image."""
    WEIGHTS = auto()
    """Address of the transformed weights."""
    BIAS = auto()
    """Address of the bias: a float for each destination channel."""
    SCRATCH = auto()
    """Address of the scratch memory of all threads."""
    SCRATCH_NBYTES = auto()
    """Size of the scratch memory of one thread, in bytes."""
    ITEMS = auto()
    """Number of work items: blocks times groups."""
    GROUPS = auto()
    """Number of groups of destination channels."""
    BLOCKS = auto()
    """Number of blocks of tiles."""
    TILES = auto()
    """Number of tiles of all images."""
    TILES_DOWN = auto()
    """Number of rows of tiles of an image."""
    TILES_ACROSS = auto()
    """Number of columns of tiles of an image."""
    IC_VECTORS = auto()
    """Number of source channels, in vector registers."""
    OC_VECTORS = auto()
    """Number of destination channels, in vector registers."""
    PANELS = auto()
    """Number of panels of the weights; the last one may be narrower."""
    SRC_H = auto()
    """Height of a source image, in pixels."""
    SRC_W = auto()
    """Width of a source image, in pixels."""
    SRC_IMAGE_STRIDE = auto()
    """Bytes from one image to the next."""
    SRC_ROW_STRIDE = auto()
    """Bytes from one row of pixels to the next."""
    SRC_PIXEL_STRIDE = auto()
    """Bytes from one pixel to the next."""
    SRC_VECTOR_STRIDE = auto()
    """Bytes from one register of channels to the next."""
    DST_H = auto()
    """Height of a destination image, in pixels."""
    DST_W = auto()
    """Width of a destination image, in pixels."""
    DST_IMAGE_STRIDE = auto()
    """Bytes from one image to the next."""
    DST_ROW_STRIDE = auto()
    """Bytes from one row of pixels to the next."""
    DST_PIXEL_STRIDE = auto()
    """Bytes from one pixel to the next."""
    DST_VECTOR_STRIDE = auto()
    """Bytes from one register of channels to the next."""
    TOP = auto()
    """Padding above an image, in pixels."""
    LEFT = auto()
    """Padding left of an image, in pixels."""
    V_STRIDE = auto()
    """Bytes from one matrix V to the next; a row of V has all source channels."""
    M_STRIDE = auto()
    """Bytes from one matrix M to the next."""
    M_ROW_STRIDE = auto()
    """Bytes from one row of M to the next."""
    M_OFFSET = auto()
    """Offset of the matrices M in the scratch memory of a thread, after the matrices V."""
    SPARE_OFFSET = auto()
    """Offset of a vector of zeros in the scratch memory of a thread; a spare vector to write to follows."""
    LOWER_BOUND = auto()
    """Lower bound of the results as the bits of a 32-bit float: 0 for a ReLU, else -infinity."""
