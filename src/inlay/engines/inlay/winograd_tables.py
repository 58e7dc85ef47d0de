"""F(4x4, 3x3): the matrices of the Winograd convolution, its weights, and the words that its machine code is told.

    y = A^T [(G g G^T) * (B^T d B)] A        4x4 results of a 3x3 kernel g, from 6x6 pixels d, by 36 products

A polynomial product is found from its values at points: 0, 5/8, -5/8, 3/2, -3/2 and infinity. These give smaller errors
than small integers do, and every entry of A and B is exact in a float. (Winograd, "Arithmetic Complexity of
Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.)

The machine code is told all else by a table of 64-bit words, `Word`.
"""

from enum import IntEnum, auto
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.reordering.ir import Code

Matrix: TypeAlias = tuple[tuple[float, ...], ...]

OUT = 4
"""Results of a tile in each direction."""
KERNEL = 3
"""Weights in each direction."""
TILE = OUT + KERNEL - 1
"""Pixels of a tile in each direction."""
POINTS = TILE * TILE
"""How many matrix products there are."""
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
"""B^T, of shape (6, 6): for pixels."""
A: Matrix = tuple((float(i == 0), _P**i, (-_P) ** i, _Q**i, (-_Q) ** i, float(i == OUT - 1)) for i in range(OUT))
"""A^T, of shape (4, 6): for results."""
A_PAIRED: Matrix = tuple(
    (float(i == 0), even * _P**i, odd * _P**i, even * _Q**i, odd * _Q**i, float(i == OUT - 1))
    for i, (even, odd) in enumerate(((1.0, 0.0), (0.0, 1.0)) * (OUT // 2))
)
"""The same, for the value at 0, sum and difference of those at 5/8 and -5/8, of those at 3/2 and -3/2, and infinity."""
G: Matrix = (
    (1 / (_PP * _QQ), 0.0, 0.0),
    *(
        tuple(p**k / (2 * p * p * (p * p - q * q)) for k in range(KERNEL))
        for p, q in ((_P, _Q), (-_P, _Q), (_Q, _P), (-_Q, _P))
    ),
    (0.0, 0.0, 1.0),
)
"""G, of shape (6, 3): for weights."""


def transformed_weights(weights: npt.NDArray[np.float32], panel: int) -> npt.NDArray[np.float32]:
    """Weights of shape (oc, ic, 3, 3) as the products want them: 36 matrices, each in panels of `panel` columns.

    Post-condition: of length 36 * ic * oc. A panel holds, for each of the ic rows, its columns; the last one is
    narrower where `panel` does not divide oc. What is rounded is a product of doubles.
    """
    factors = np.kron(G, G)
    panels = [weights[first : first + panel] for first in range(0, weights.shape[0], panel)]
    columns = np.concatenate([part.transpose(2, 3, 1, 0).reshape(KERNEL * KERNEL, -1) for part in panels], axis=1)
    found: npt.NDArray[np.float32] = (factors @ columns.astype(np.float64)).astype(np.float32)
    return found.reshape(-1)


class Word(IntEnum):
    """Words of the table; addresses and strides in bytes."""

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
    """Address of a float for each destination channel."""
    SCRATCH = auto()
    """Room for every thread."""
    ROOM = auto()
    """Bytes of one thread's part of it."""
    ITEMS = auto()
    """Blocks of tiles times groups of channels."""
    GROUPS = auto()
    """Groups of destination channels."""
    BLOCKS = auto()
    """Blocks of tiles."""
    TILES = auto()
    """Tiles of all images."""
    TILES_DOWN = auto()
    """Of an image."""
    TILES_ACROSS = auto()
    """Of an image."""
    IC_VECTORS = auto()
    """Source channels, in registers."""
    OC_VECTORS = auto()
    """Destination channels, in registers."""
    PANELS = auto()
    """Panels of the weights: PANEL vectors of destination channels, the last one as many as there are."""
    SRC_H = auto()
    """Pixels."""
    SRC_W = auto()
    """Pixels."""
    SRC_IMAGE = auto()
    """From one image to the next."""
    SRC_ROW = auto()
    """From one row of pixels to the next."""
    SRC_PIXEL = auto()
    """From one pixel to the next."""
    SRC_VECTOR = auto()
    """From one register of channels to the next."""
    DST_H = auto()
    """Pixels."""
    DST_W = auto()
    """Pixels."""
    DST_IMAGE = auto()
    """From one image to the next."""
    DST_ROW = auto()
    """From one row of pixels to the next."""
    DST_PIXEL = auto()
    """From one pixel to the next."""
    DST_VECTOR = auto()
    """From one register of channels to the next."""
    TOP = auto()
    """Rows of padding above an image."""
    LEFT = auto()
    """Columns of padding left of an image."""
    V_MATRIX = auto()
    """From one V to the next; its row is all source channels."""
    M_MATRIX = auto()
    """From one M to the next."""
    M_ROW = auto()
    """From one row of it to the next."""
    M_AT = auto()
    """Where a thread's M begin, after its V."""
    SPARE_AT = auto()
    """Where its zeros begin; a spare vector follows."""
    BOUND = auto()
    """What results are at least, as a 32-bit float."""


def pointer(code: Code, word: Word) -> str:
    """The address that a word of `%table` is."""
    return code.let(f"load ptr, ptr {code.word('%table', word)}")
