"""Formulas of bandwidth-limited primitives: eltwise, PReLU, softmax, shuffle, reduction, binary, concat, sum ...

Eltwise: each algorithm has two functions of (x, alpha, beta), the function and its derivative. For an algorithm that
ends in `_use_dst_for_bwd`, the derivative is a function of the result instead of the source:

>>> d = eltwise(src=np.array([0.5]), algorithm="tanh", alpha=0, beta=0)["dst"]
>>> by_dst = eltwise_backward(dst=d, diff_dst=np.ones(1), algorithm="tanh_use_dst_for_bwd", alpha=0, beta=0)
>>> bool(np.isclose(by_dst["diff_src"], 1 - np.tanh(0.5) ** 2))
True

Softmax and its logarithm normalize along one axis; their gradients are computed from the result:

    accurate   dst = exp(src - max) / sum of exp(src - max)
    log        dst = src - max - log(sum of exp(src - max))

A shuffle with groups of g views the n elements of an axis as a matrix of n / g rows, and transposes it:

>>> shuffle(src=np.arange(6.0), axis=0, group_size=2)["dst"].tolist()
[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]

Reduction combines the elements along each axis whose dim in the destination is 1:

    max min sum mul mean
    norm_lp_max           max(eps, sum of |src|^p)^(1/p)
    norm_lp_sum           (eps + sum of |src|^p)^(1/p)
    norm_lp_power_p_max   max(eps, sum of |src|^p)
    norm_lp_power_p_sum   eps + sum of |src|^p

Binary combines two tensors element by element; axes with a dim of 1 are broadcast:

    add sub mul div max min      the operation
    ge gt le lt eq ne            1 where it holds, else 0
    select                       src_0 where src_2 is not zero, else src_1

Dynamic quantization and cache write are described in the modules of `inlay.primitives` with these names.

Source: oneAPI specification, "Eltwise", "PReLU", "Softmax" and "LogSoftmax", "Shuffle", "Reduction", "Binary", "Concat"
and "Sum"; oneDNN for derivatives where a function is not differentiable.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from inlay.engines.reference.values import Array, Results, Shapes
from inlay.errors import InvalidArguments

Function: TypeAlias = Callable[[Array, float, float], Array]

FROM_DST = "_use_dst_for_bwd"
"""The suffix of algorithms whose derivative is computed from the result."""

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_erfc: Callable[[Array], Array] = np.vectorize(math.erfc, otypes=[np.float64])


def eltwise(*, src: Array, algorithm: str, alpha: float, beta: float) -> Results:
    """Compute the function of each element."""
    return {"dst": apply(algorithm, src, alpha, beta)}


def eltwise_backward(
    *,
    src: Array | None = None,
    dst: Array | None = None,
    diff_dst: Array,
    algorithm: str,
    alpha: float,
    beta: float,
) -> Results:
    """Compute the gradient of the source; it reads `dst` for algorithms with the suffix `FROM_DST`, else `src`."""
    table, x = (_BY_DST, dst) if algorithm.endswith(FROM_DST) else (_BY_SRC, src)
    assert x is not None
    with np.errstate(all="ignore"):
        slope = table[algorithm.removesuffix(FROM_DST)](x, alpha, beta)
        return {"diff_src": diff_dst * slope}


def apply(algorithm: str, x: Array, alpha: float, beta: float) -> Array:
    """Return the function of each element."""
    with np.errstate(all="ignore"):
        return _FORWARD[algorithm.removesuffix(FROM_DST)](x, alpha, beta)


def _logistic(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow and without loss of precision for large |x|."""
    result: Array = np.exp(-np.logaddexp(0, -x))
    return result


def _relu(x: Array, a: float, b: float) -> Array:
    """Return ReLU with slope `a`; with slope 0, the result for -infinity and -0.0 is 0.0."""
    return np.where(x > 0, x, a * x) if a else np.maximum(x, 0.0)


def _gelu_argument(x: Array) -> Array:
    """Return the argument of tanh in the approximation of GELU."""
    result: Array = _SQRT_2_OVER_PI * (x + 0.044715 * x**3)
    return result


def _gelu_tanh_slope(x: Array, a: float, b: float) -> Array:
    """Return the derivative of the tanh approximation of GELU."""
    t = np.tanh(_gelu_argument(x))
    inner = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x**2)
    slope: Array = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner
    return slope


def _mish_slope(x: Array, a: float, b: float) -> Array:
    """Return the derivative of Mish."""
    t = np.tanh(np.logaddexp(0, x))
    slope: Array = t + x * (1 - t**2) * _logistic(x)
    return slope


def _swish_slope(x: Array, a: float, b: float) -> Array:
    """Return the derivative of Swish."""
    v = _logistic(a * x)
    return v + a * x * v * (1 - v)


def _hardsigmoid(x: Array, a: float, b: float) -> Array:
    """Return a x + b, clipped to [0, 1]."""
    return np.clip(a * x + b, 0, 1)


def _hardsigmoid_slope(x: Array, a: float, b: float) -> Array:
    """Return the derivative of hardsigmoid; 0 at both corners."""
    v = a * x + b
    return np.where((v > 0) & (v < 1), a, 0.0)


def _pow_slope(x: Array, a: float, b: float) -> Array:
    """Return the derivative of a x^b."""
    return np.zeros_like(x) if b == 0 else a * b * x ** (b - 1)


_FORWARD: Mapping[str, Function] = {
    "relu": _relu,
    "tanh": lambda x, a, b: np.tanh(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)),
    "square": lambda x, a, b: x**2,
    "abs": lambda x, a, b: np.abs(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "linear": lambda x, a, b: a * x + b,
    "soft_relu": lambda x, a, b: np.logaddexp(0, a * x) / a,
    "hardsigmoid": _hardsigmoid,
    "logistic": lambda x, a, b: _logistic(x),
    "mish": lambda x, a, b: x * np.tanh(np.logaddexp(0, x)),
    "exp": lambda x, a, b: np.exp(x),
    "gelu_tanh": lambda x, a, b: 0.5 * x * (1 + np.tanh(_gelu_argument(x))),
    "swish": lambda x, a, b: x * _logistic(a * x),
    "log": lambda x, a, b: np.log(x),
    "clip": lambda x, a, b: np.clip(x, a, b),
    "clip_v2": lambda x, a, b: np.clip(x, a, b),
    "pow": lambda x, a, b: a * x**b,
    "gelu_erf": lambda x, a, b: 0.5 * x * _erfc(-x / math.sqrt(2)),
    "round": lambda x, a, b: np.rint(x),
    "hardswish": lambda x, a, b: x * _hardsigmoid(x, a, b),
}

_BY_SRC: Mapping[str, Function] = {
    "relu": lambda x, a, b: np.where(x > 0, 1.0, a),
    "tanh": lambda x, a, b: 1 - np.tanh(x) ** 2,
    "elu": lambda x, a, b: np.where(x > 0, 1.0, a * np.exp(x)),
    "square": lambda x, a, b: 2 * x,
    "abs": lambda x, a, b: np.sign(x),
    "sqrt": lambda x, a, b: 1 / (2 * np.sqrt(x)),
    "linear": lambda x, a, b: np.full_like(x, a),
    "soft_relu": lambda x, a, b: _logistic(a * x),
    "hardsigmoid": _hardsigmoid_slope,
    "logistic": lambda x, a, b: _logistic(x) * _logistic(-x),
    "mish": _mish_slope,
    "exp": lambda x, a, b: np.exp(x),
    "gelu_tanh": _gelu_tanh_slope,
    "swish": _swish_slope,
    "log": lambda x, a, b: 1 / x,
    "clip": lambda x, a, b: np.where((x > a) & (x <= b), 1.0, 0.0),
    "clip_v2": lambda x, a, b: np.where((x > a) & (x < b), 1.0, 0.0),
    "pow": _pow_slope,
    "gelu_erf": lambda x, a, b: 0.5 * _erfc(-x / math.sqrt(2)) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi),
    "hardswish": lambda x, a, b: _hardsigmoid(x, a, b) + x * _hardsigmoid_slope(x, a, b),
}

_BY_DST: Mapping[str, Function] = {
    "relu": lambda d, a, b: np.where(d > 0, 1.0, a),
    "tanh": lambda d, a, b: 1 - d**2,
    "elu": lambda d, a, b: np.where(d > 0, 1.0, d + a),
    "sqrt": lambda d, a, b: 1 / (2 * d),
    "logistic": lambda d, a, b: d * (1 - d),
    "exp": lambda d, a, b: d,
    "clip_v2": lambda d, a, b: np.where((d > a) & (d < b), 1.0, 0.0),
}

ALGORITHMS: Mapping[str, tuple[Function, Function | None]] = MappingProxyType(
    {name: (function, _BY_SRC.get(name)) for name, function in _FORWARD.items()}
    | {name + FROM_DST: (_FORWARD[name], slope) for name, slope in _BY_DST.items()}
)
"""The function of each algorithm, and its derivative, a function of the source or of the result; None for `round`."""


def prelu(*, src: Array, weights: Array) -> Results:
    """Compute `dst = src if src > 0 else src * weights`; the weights are broadcast along axes with a dim of 1."""
    return {"dst": np.where(src > 0, src, src * weights)}


def prelu_backward(*, src: Array, weights: Array, diff_dst: Array) -> Results:
    """Compute the gradients of source and weights; that of a weight is summed over the axes of broadcasting."""
    repeated = tuple(i for i, (n, m) in enumerate(zip(weights.shape, src.shape, strict=True)) if n != m)
    diff_weights = np.where(src > 0, 0.0, diff_dst * src).sum(axis=repeated, keepdims=True)
    return {"diff_src": np.where(src > 0, diff_dst, diff_dst * weights), "diff_weights": diff_weights}


def softmax(*, src: Array, algorithm: str, axis: int) -> Results:
    """Compute softmax along an axis, or its logarithm."""
    shifted = src - src.max(axis=axis, keepdims=True, initial=-np.inf)
    powers = np.exp(shifted)
    total = powers.sum(axis=axis, keepdims=True)
    return {"dst": shifted - np.log(total) if algorithm == "log" else powers / total}


def softmax_backward(*, dst: Array, diff_dst: Array, algorithm: str, axis: int) -> Results:
    """Compute the gradient of the source from the result of softmax or its logarithm."""
    if algorithm == "log":
        return {"diff_src": diff_dst - np.exp(dst) * diff_dst.sum(axis=axis, keepdims=True)}
    return {"diff_src": dst * (diff_dst - (diff_dst * dst).sum(axis=axis, keepdims=True))}


def shuffle(*, src: Array, axis: int, group_size: int) -> Results:
    """Permute an axis: transpose it as a matrix with rows of `group_size` elements."""
    return {"dst": _shuffle_axis(src, axis, group_size)}


def shuffle_backward(*, diff_dst: Array, axis: int, group_size: int) -> Results:
    """Compute the gradient of the source: the inverse permutation, which is a shuffle too."""
    return {"diff_src": _shuffle_axis(diff_dst, axis, diff_dst.shape[axis] // group_size)}


def _shuffle_axis(array: Array, axis: int, columns: int) -> Array:
    """Transpose an axis as a matrix with so many columns."""
    n = array.shape[axis]
    rows = n // columns if columns else 0
    split = array.reshape(*array.shape[:axis], rows, columns, *array.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(array.shape)


_REDUCTIONS: Mapping[str, Callable[..., Any]] = {"max": np.amax, "min": np.amin, "sum": np.sum, "mul": np.prod}
_INITIAL = {"max": -np.inf, "min": np.inf, "sum": 0.0, "mul": 1.0}


def reduction(*, src: Array, algorithm: str, p: float, eps: float, shapes: Shapes) -> Results:
    """Reduce the axes along which `shapes["dst"]` has a dim of 1; max and min of no elements are infinite."""
    axes = tuple(i for i, (n, m) in enumerate(zip(src.shape, shapes["dst"], strict=True)) if n != m)
    if algorithm in _REDUCTIONS:
        return {"dst": _REDUCTIONS[algorithm](src, axis=axes, keepdims=True, initial=_INITIAL[algorithm])}
    if algorithm == "mean":
        return {"dst": src.sum(axis=axes, keepdims=True) / np.float64(prod([src.shape[i] for i in axes]))}
    powers = (np.abs(src) ** p).sum(axis=axes, keepdims=True)
    bounded = np.maximum(powers, eps) if algorithm.endswith("max") else powers + eps
    return {"dst": bounded if "power" in algorithm else bounded ** (1 / p)}


_COMBINATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


def binary(*, src_0: Array, src_1: Array, src_2: Array | None = None, algorithm: str) -> Results:
    """Combine two tensors element by element; `select` chooses between them by the elements of a third."""
    if algorithm == "select":
        assert src_2 is not None
        return {"dst": np.where(src_2 != 0, src_0, src_1)}
    return {"dst": combine(algorithm, src_0, src_1)}


def combine(algorithm: str, x: Array, y: Array) -> Array:
    """Combine two arrays element by element; comparisons return 1.0 and 0.0."""
    return _COMBINATIONS[algorithm](x, y).astype(np.float64)


def concat(*, sources: Sequence[Array], axis: int) -> Results:
    """Concatenate the sources along an axis."""
    return {"dst": np.concatenate(sources, axis=axis)}


def weighted_sum(*, sources: Sequence[Array], scales: Sequence[float]) -> Results:
    """Compute `dst = scales[0] * src_0 + scales[1] * src_1 + ...`."""
    return {"dst": sum((scale * src for scale, src in zip(scales, sources, strict=True)), np.zeros(()))}


def dynamic_quantization(*, src: Array) -> Results:
    """Quantize to u8 with the scale and zero point of the range of the elements, in f32 as ONNX does."""
    x = src.astype(np.float32)
    low, high = x.min(initial=0), x.max(initial=0)
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero_point = np.rint(np.clip(-low / scale, 0, 255))
    quantized = np.clip(np.rint(x / scale) + zero_point, 0, 255)
    return {
        "dst": quantized.astype(np.float64),
        "scale": np.full(1, scale, np.float64),
        "zero_point": np.full(1, zero_point, np.float64),
    }


def table_lookup(*, src: Array, table: Array) -> Results:
    """Replace each element by the entry of the table at its bits, a number from 0 to 255."""
    return {"dst": table[src.astype(np.int64) & 255]}


def cache_write(*, src: Array, position: Array, axis: int, read_destination: Callable[[str], Array]) -> Results:
    """Replace the rows of the destination from a position on.

    Raises:
        InvalidArguments: the rows are not all within the destination.
    """
    dst, first, count = read_destination("dst"), int(position[0]), src.shape[axis]
    if not 0 <= first <= dst.shape[axis] - count:
        raise InvalidArguments(
            f"CacheWrite: position is {first}: it is from 0 to {dst.shape[axis] - count}, since dst has "
            f"{dst.shape[axis]} elements along axis {axis} and src {count}"
        )
    dst[(slice(None),) * axis + (slice(first, first + count),)] = src
    return {"dst": dst}
