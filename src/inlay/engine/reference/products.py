"""Inner product and matrix multiplication.

    inner product   dst(n, o) = bias(o) + sum over c and space of src(n, c, x) * weights(o, c, x)
    matmul          dst(b, m, n) = bias(b, m, n) + sum over k of src(b, m, k) * weights(b, k, n)

In matmul, b stands for any number of axes, and an axis of length 1 is repeated.

Source: oneAPI specification, "Inner product" and "Matrix multiplication".
"""

from math import prod

from inlay.engine.reference.arrays import Array, Results, Shapes


def inner_product(*, src: Array, weights: Array, bias: Array | None = None) -> Results:
    """The formula above."""
    dst = _flat(src) @ _flat(weights).T
    return {"dst": dst if bias is None else dst + bias}


def inner_product_backward_data(*, diff_dst: Array, weights: Array, shapes: Shapes) -> Results:
    """The gradient of the source."""
    return {"diff_src": (diff_dst @ _flat(weights)).reshape(shapes["diff_src"])}


def inner_product_backward_weights(*, src: Array, diff_dst: Array, shapes: Shapes) -> Results:
    """The gradients of weights and bias."""
    diff_weights = (diff_dst.T @ _flat(src)).reshape(shapes["diff_weights"])
    return {"diff_weights": diff_weights, "diff_bias": diff_dst.sum(axis=0)}


def matmul(*, src: Array, weights: Array, bias: Array | None = None) -> Results:
    """The formula above."""
    dst = src @ weights
    return {"dst": dst if bias is None else dst + bias}


def _flat(array: Array) -> Array:
    """All axes but the first as one."""
    return array.reshape(len(array), prod(array.shape[1:]))
