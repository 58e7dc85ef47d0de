"""Primitives in plain Python loops over coordinates, close to the formulas of the specification.

No code is shared with the reference engine: each element of the destination is computed on its own. Arrays are small.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Index = tuple[int, ...]


def every(shape: Sequence[int]) -> Iterator[Index]:
    """Every coordinate."""
    return itertools.product(*map(range, shape))


def elementwise(shape: Sequence[int], element: Callable[[Index], float]) -> Array:
    """The array whose element at each coordinate is what the function says."""
    result = np.zeros(tuple(shape))
    for at in every(shape):
        result[at] = element(at)
    return result


def tapped(window: Index, tap: Index, strides: Index, dilations: Index, padding: Index) -> Index:
    """The coordinate under a tap, inside the source or not."""
    return tuple(
        o * s + k * (d + 1) - p for o, k, s, d, p in zip(window, tap, strides, dilations, padding, strict=True)
    )


def is_inside(at: Index, shape: Sequence[int]) -> bool:
    """Return True if a coordinate is within the shape."""
    return all(0 <= i < n for i, n in zip(at, shape, strict=True))


def convolution(
    src: Array, weights: Array, bias: Array | None, out: Index, strides: Index, dilations: Index, padding: Index
) -> Array:
    """Convolution by the sum over input channels and taps."""
    w = weights if weights.ndim > src.ndim else weights[None]
    groups, oc, ic = w.shape[:3]

    def element(at: Index) -> float:
        n, channel, *window = at
        g, o = divmod(channel, oc)
        total = 0.0 if bias is None else float(bias[channel])
        for c, *tap in every((ic, *w.shape[3:])):
            under = tapped(tuple(window), tuple(tap), strides, dilations, padding)
            if is_inside(under, src.shape[2:]):
                total += src[(n, g * ic + c, *under)] * w[(g, o, c, *tap)]
        return total

    return elementwise((src.shape[0], groups * oc, *out), element)


def deconvolution(
    src: Array, weights: Array, bias: Array | None, out: Index, strides: Index, dilations: Index, padding: Index
) -> Array:
    """Deconvolution: each element of the source is added to what lies under its taps."""
    w = weights if weights.ndim > src.ndim else weights[None]
    groups, oc, ic = w.shape[:3]
    dst = np.zeros((src.shape[0], groups * oc, *out))
    for n, channel, *window in every(src.shape):
        g, c = divmod(channel, ic)
        for o, *tap in every((oc, *w.shape[3:])):
            under = tapped(tuple(window), tuple(tap), strides, dilations, padding)
            if is_inside(under, out):
                dst[(n, g * oc + o, *under)] += src[(n, channel, *window)] * w[(g, o, c, *tap)]
    return dst if bias is None else dst + bias.reshape(-1, *[1] * len(out))


def pooling(
    src: Array, algorithm: str, kernel: Index, out: Index, strides: Index, dilations: Index, padding: Index
) -> tuple[Array, Array]:
    """Pooling, and the row-major index of the tap that was the greatest; a strict comparison keeps the first."""
    index = np.zeros((*src.shape[:2], *out))

    def element(at: Index) -> float:
        n, c, *window = at
        best, total, count = -math.inf, 0.0, 0
        for i, tap in enumerate(every(kernel)):
            under = tapped(tuple(window), tap, strides, dilations, padding)
            if not is_inside(under, src.shape[2:]):
                continue
            value = src[(n, c, *under)]
            total, count = total + value, count + 1
            if value > best:
                best, index[at] = value, i
        if algorithm == "max":
            return best
        return total / (math.prod(kernel) if algorithm == "avg_include_padding" else count)

    return elementwise(index.shape, element), index


def lrn(src: Array, algorithm: str, size: int, alpha: float, beta: float, k: float) -> Array:
    """Local response normalization: offsets from -(size - 1) / 2 to (size + 1) / 2 - 1, as the specification counts."""
    axes = [1] if algorithm == "across_channels" else list(range(2, src.ndim))
    offsets = range(-((size - 1) // 2), (size + 1) // 2)

    def element(at: Index) -> float:
        total = 0.0
        for steps in itertools.product(offsets, repeat=len(axes)):
            near = list(at)
            for axis, step in zip(axes, steps, strict=True):
                near[axis] += step
            if is_inside(tuple(near), src.shape):
                total += src[tuple(near)] ** 2
        return float(src[at] * (k + alpha * total / size ** len(axes)) ** -beta)

    return elementwise(src.shape, element)


def normalization(src: Array, together: Callable[[Index, Index], bool], epsilon: float) -> tuple[Array, Array, Array]:
    """Each element brought to mean 0 and variance 1 among those `together` with it; mean and variance by element."""
    means, variances = np.zeros(src.shape), np.zeros(src.shape)
    for at in every(src.shape):
        peers = [float(src[other]) for other in every(src.shape) if together(at, other)]
        means[at] = math.fsum(peers) / len(peers)
        variances[at] = math.fsum((x - means[at]) ** 2 for x in peers) / len(peers)
    return (src - means) / np.sqrt(variances + epsilon), means, variances


def resampling(src: Array, algorithm: str, out: Index) -> Array:
    """Resampling: half-pixel centers; of the two nearest elements along each axis, those beyond the border are it."""

    def shares(o: int, n_out: int, n: int) -> list[tuple[int, float]]:
        center = (o + 0.5) * n / n_out - 0.5
        if algorithm == "nearest":
            return [(math.floor(center + 0.5), 1.0)]
        low = math.floor(center)
        part = center - low
        return [(min(max(low, 0), n - 1), 1 - part), (min(max(low + 1, 0), n - 1), part)]

    def element(at: Index) -> float:
        per_axis = [shares(o, m, n) for o, m, n in zip(at[2:], out, src.shape[2:], strict=True)]
        return sum(
            float(src[(*at[:2], *[i for i, _ in choice])]) * math.prod(share for _, share in choice)
            for choice in itertools.product(*per_axis)
        )

    return elementwise((*src.shape[:2], *out), element)


def softmax(src: Array, algorithm: str, axis: int) -> Array:
    """Softmax or its logarithm, each element against its row."""

    def element(at: Index) -> float:
        row = [float(src[(*at[:axis], i, *at[axis + 1 :])]) for i in range(src.shape[axis])]
        total = math.fsum(math.exp(x) for x in row)
        return float(src[at]) - math.log(total) if algorithm == "log" else math.exp(src[at]) / total

    return elementwise(src.shape, element)


def reduction(src: Array, algorithm: str, p: float, eps: float, out: Index) -> Array:
    """Reduction: every element whose coordinate, with 0 on reduced axes, is that of the destination."""

    def element(at: Index) -> float:
        spans = [range(n) if m == 1 else [i] for i, n, m in zip(at, src.shape, out, strict=True)]
        values = [float(src[coordinate]) for coordinate in itertools.product(*spans)]
        powers = math.fsum(abs(x) ** p for x in values) if algorithm.startswith("norm") else 0.0
        found: dict[str, Callable[[], float]] = {
            "max": lambda: max(values),
            "min": lambda: min(values),
            "sum": lambda: math.fsum(values),
            "mul": lambda: math.prod(values),
            "mean": lambda: math.fsum(values) / len(values),
            "norm_lp_max": lambda: max(powers, eps) ** (1 / p),
            "norm_lp_sum": lambda: (powers + eps) ** (1 / p),
            "norm_lp_power_p_max": lambda: max(powers, eps),
            "norm_lp_power_p_sum": lambda: powers + eps,
        }
        return found[algorithm]()

    return elementwise(out, element)


ELTWISE: dict[str, Callable[[float, float, float], float]] = {
    "relu": lambda x, a, b: x if x > 0 else a * x,
    "tanh": lambda x, a, b: math.tanh(x),
    "elu": lambda x, a, b: x if x > 0 else a * (math.exp(x) - 1),
    "square": lambda x, a, b: x * x,
    "abs": lambda x, a, b: abs(x),
    "sqrt": lambda x, a, b: math.sqrt(x),
    "linear": lambda x, a, b: a * x + b,
    "soft_relu": lambda x, a, b: math.log(1 + math.exp(a * x)) / a,
    "hardsigmoid": lambda x, a, b: max(0, min(1, a * x + b)),
    "logistic": lambda x, a, b: 1 / (1 + math.exp(-x)),
    "mish": lambda x, a, b: x * math.tanh(math.log(1 + math.exp(x))),
    "exp": lambda x, a, b: math.exp(x),
    "gelu_tanh": lambda x, a, b: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x, a, b: x / (1 + math.exp(-a * x)),
    "log": lambda x, a, b: math.log(x),
    "clip": lambda x, a, b: min(b, max(a, x)),
    "clip_v2": lambda x, a, b: min(b, max(a, x)),
    "pow": lambda x, a, b: a * x**b,
    "gelu_erf": lambda x, a, b: x / 2 * (1 + math.erf(x / math.sqrt(2))),
    "round": lambda x, a, b: float(round(x)),
    "hardswish": lambda x, a, b: x * max(0, min(1, a * x + b)),
}
"""Functions of one number, as the specification writes them."""

BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": max,
    "min": min,
    "ge": lambda x, y: float(x >= y),
    "gt": lambda x, y: float(x > y),
    "le": lambda x, y: float(x <= y),
    "lt": lambda x, y: float(x < y),
    "eq": lambda x, y: float(x == y),
    "ne": lambda x, y: float(x != y),
}
"""Functions of two numbers."""
