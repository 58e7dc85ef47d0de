"""PReLU: `dst = src if src > 0 else src * weights`, where axes of length 1 of the weights are repeated.

Source: oneAPI specification, "PReLU".
"""

import numpy as np

from inlay.engine.reference.arrays import Array, Results


def forward(*, src: Array, weights: Array) -> Results:
    """The formula above."""
    return {"dst": np.where(src > 0, src, src * weights)}


def backward(*, src: Array, weights: Array, diff_dst: Array) -> Results:
    """The gradients of source and weights; what a weight was repeated for is summed."""
    repeated = tuple(i for i, (n, m) in enumerate(zip(weights.shape, src.shape, strict=True)) if n != m)
    diff_weights = np.where(src > 0, 0.0, diff_dst * src).sum(axis=repeated, keepdims=True)
    return {"diff_src": np.where(src > 0, diff_dst, diff_dst * weights), "diff_weights": diff_weights}
