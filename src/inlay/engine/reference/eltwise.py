"""Functions of one element, with their derivatives.

Each algorithm is a pair of functions of (x, alpha, beta). An algorithm that ends in `_use_dst_for_bwd` computes the
same, and its derivative from the result instead of the source:

>>> d = forward(src=np.array([0.5]), algorithm="tanh", alpha=0, beta=0)["dst"]
>>> by_dst = backward(dst=d, diff_dst=np.ones(1), algorithm="tanh_use_dst_for_bwd", alpha=0, beta=0)
>>> bool(np.isclose(by_dst["diff_src"], 1 - np.tanh(0.5) ** 2))
True

Source: oneAPI specification, "Eltwise"; oneDNN for the sides that derivatives take where a function has a corner.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from inlay.engine.reference.arrays import Array, Results

Function: TypeAlias = Callable[[Array, float, float], Array]

FROM_DST = "_use_dst_for_bwd"
"""How names of algorithms end whose derivative is computed from the result."""

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_erfc: Callable[[Array], Array] = np.vectorize(math.erfc, otypes=[np.float64])


def forward(*, src: Array, algorithm: str, alpha: float, beta: float) -> Results:
    """The function of each element."""
    return {"dst": apply(algorithm, src, alpha, beta)}


def backward(
    *,
    src: Array | None = None,
    dst: Array | None = None,
    diff_dst: Array,
    algorithm: str,
    alpha: float,
    beta: float,
) -> Results:
    """The gradient of the source; `dst` is read by algorithms that say so, else `src`."""
    table, x = (_BY_DST, dst) if algorithm.endswith(FROM_DST) else (_BY_SRC, src)
    assert x is not None
    with np.errstate(all="ignore"):
        slope = table[algorithm.removesuffix(FROM_DST)](x, alpha, beta)
        return {"diff_src": diff_dst * slope}


def apply(algorithm: str, x: Array, alpha: float, beta: float) -> Array:
    """The function of each element."""
    with np.errstate(all="ignore"):
        return _FORWARD[algorithm.removesuffix(FROM_DST)](x, alpha, beta)


def _logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), exact for large |x| too."""
    result: Array = np.exp(-np.logaddexp(0, -x))
    return result


def _relu(x: Array, a: float, b: float) -> Array:
    """Without a slope, infinity and -0.0 give 0 too."""
    return np.where(x > 0, x, a * x) if a else np.maximum(x, 0.0)


def _gelu_argument(x: Array) -> Array:
    result: Array = _SQRT_2_OVER_PI * (x + 0.044715 * x**3)
    return result


def _gelu_tanh_slope(x: Array, a: float, b: float) -> Array:
    t = np.tanh(_gelu_argument(x))
    inner = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x**2)
    slope: Array = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner
    return slope


def _mish_slope(x: Array, a: float, b: float) -> Array:
    t = np.tanh(np.logaddexp(0, x))
    slope: Array = t + x * (1 - t**2) * _logistic(x)
    return slope


def _swish_slope(x: Array, a: float, b: float) -> Array:
    v = _logistic(a * x)
    return v + a * x * v * (1 - v)


def _hardsigmoid(x: Array, a: float, b: float) -> Array:
    return np.clip(a * x + b, 0, 1)


def _hardsigmoid_slope(x: Array, a: float, b: float) -> Array:
    v = a * x + b
    return np.where((v > 0) & (v < 1), a, 0.0)


def _pow_slope(x: Array, a: float, b: float) -> Array:
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
"""By the name of the algorithm: the function, and its derivative, of the source or of the result; round has none."""
