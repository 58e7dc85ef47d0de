"""What takes elements as they are: shuffle, concat, and the weighted sum of tensors.

A shuffle with groups of g lays the n elements of an axis out as n / g rows of g and reads them by columns:

>>> shuffle(src=np.arange(6.0), axis=0, group_size=2)["dst"].tolist()
[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]

Source: oneAPI specification, "Shuffle", "Concat" and "Sum".
"""

from collections.abc import Sequence

import numpy as np

from inlay.engine.reference.arrays import Array, Results


def shuffle(*, src: Array, axis: int, group_size: int) -> Results:
    """Rows of `group_size` read by columns."""
    return {"dst": _transposed(src, axis, group_size)}


def shuffle_backward(*, diff_dst: Array, axis: int, group_size: int) -> Results:
    """The gradient of the source: the way back, which is a shuffle too."""
    return {"diff_src": _transposed(diff_dst, axis, diff_dst.shape[axis] // group_size)}


def concat(*, sources: Sequence[Array], axis: int) -> Results:
    """One tensor after the other."""
    return {"dst": np.concatenate(sources, axis=axis)}


def weighted_sum(*, sources: Sequence[Array], scales: Sequence[float]) -> Results:
    """`dst = scales[0] * src_0 + scales[1] * src_1 + ...`."""
    return {"dst": sum((scale * src for scale, src in zip(scales, sources, strict=True)), np.zeros(()))}


def _transposed(array: Array, axis: int, columns: int) -> Array:
    n = array.shape[axis]
    rows = n // columns if columns else 0
    split = array.reshape(*array.shape[:axis], rows, columns, *array.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(array.shape)
