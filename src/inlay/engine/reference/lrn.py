"""Local response normalization: each element divided by a power of the squares around it.

    dst = src * base^-beta,    base = k + alpha / count * sum of src^2 over the window

The window is `local_size` channels around the element, or `local_size` elements along each spatial axis; `count` is the
number of elements of a whole window, also at the border, where squares outside are 0. The half of an even size is
rounded down, so it spans one element less. The workspace holds `base`.

Source: oneAPI specification, "Local response normalization".
"""

import numpy as np

from inlay.engine.reference.arrays import Array, Results


def forward(*, src: Array, algorithm: str, local_size: int, alpha: float, beta: float, k: float) -> Results:
    """The formula above."""
    axes = _axes(src, algorithm)
    base = k + alpha / local_size ** len(axes) * _around(src**2, axes, local_size)
    return {"dst": src * base**-beta, "workspace": base}


def backward(
    *,
    src: Array,
    diff_dst: Array,
    workspace: Array | None = None,
    algorithm: str,
    local_size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Results:
    """The gradient of the source: an element is in its own window and in those around it."""
    axes = _axes(src, algorithm)
    share = alpha / local_size ** len(axes)
    base = k + share * _around(src**2, axes, local_size) if workspace is None else workspace
    through_base = _around(diff_dst * src * base ** (-beta - 1), axes, local_size)
    return {"diff_src": diff_dst * base**-beta - 2 * share * beta * src * through_base}


def _axes(src: Array, algorithm: str) -> tuple[int, ...]:
    """The axes of the window."""
    return (1,) if algorithm == "across_channels" else tuple(range(2, src.ndim))


def _around(array: Array, axes: tuple[int, ...], local_size: int) -> Array:
    """The sum over the window around each element."""
    half = (local_size - 1) // 2
    for axis in axes:
        at = np.arange(array.shape[axis])
        near = (abs(at[:, None] - at) <= half).astype(np.float64)
        array = np.moveaxis(np.tensordot(near, array, (1, axis)), 0, axis)
    return array
