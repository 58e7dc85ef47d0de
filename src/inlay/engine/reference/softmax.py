"""Softmax and its logarithm along one axis.

    accurate   dst = exp(src - max) / sum of exp(src - max)
    log        dst = src - max - log(sum of exp(src - max))

Gradients are computed from the result.

Source: oneAPI specification, "Softmax" and "LogSoftmax".
"""

import numpy as np

from inlay.engine.reference.arrays import Array, Results


def forward(*, src: Array, algorithm: str, axis: int) -> Results:
    """The formula above."""
    shifted = src - src.max(axis=axis, keepdims=True, initial=-np.inf)
    powers = np.exp(shifted)
    total = powers.sum(axis=axis, keepdims=True)
    return {"dst": shifted - np.log(total) if algorithm == "log" else powers / total}


def backward(*, dst: Array, diff_dst: Array, algorithm: str, axis: int) -> Results:
    """The gradient of the source."""
    if algorithm == "log":
        return {"diff_src": diff_dst - np.exp(dst) * diff_dst.sum(axis=axis, keepdims=True)}
    return {"diff_src": dst * (diff_dst - (diff_dst * dst).sum(axis=axis, keepdims=True))}
