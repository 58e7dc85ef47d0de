"""Arrays of special values, and what ONNX defines operators to give for them, as formulas in NumPy's float64."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

Array = npt.NDArray[Any]

_LARGEST = 3.4028234663852886e38
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, _LARGEST, -_LARGEST, 3e38, -3e38, 1e38, 1.2e-38, -1.2e-38)
_ORDINARY = (1.0, -1.0, 88.8, -88.0, 100.0, -100.0, 104.0, 1e4, -1e4, 1e10, -1e10, 1e20, -1e20)


def special_values(count: int, seed: int = 0, share: float = 1.0) -> Array:
    """So many floats, none subnormal: of a share of them half are special and half of any magnitude, others usual."""
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array([*_SPECIAL, *_ORDINARY]), count)
    any_magnitude = rng.standard_normal(count) * 10.0 ** rng.uniform(-30, 38, count)
    values = np.where(rng.random(count) < 0.5, values, np.clip(any_magnitude, -_LARGEST, _LARGEST))
    return np.where(rng.random(count) < share, values, rng.standard_normal(count)).astype(np.float32)


_erf = np.vectorize(erf, otypes=[np.float64])


def _constant(value: Any) -> Array:
    return np.array(value, np.float32)


@dataclass(frozen=True)
class Case:
    """An operator of one tensor."""

    operator: str
    formula: Callable[[Array], Array]
    """What it gives, in float64."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    first: bool = False
    """Whether its constants come first."""


def _each(operator: str, formula: Callable[[Array], Array], **attributes: Any) -> Case:
    return Case(operator, formula, attributes)


ELEMENTWISE: Sequence[Case] = (
    _each("Relu", lambda x: np.maximum(x, 0)),
    Case("Clip", lambda x: np.clip(x, -1, 6), {}, {"low": _constant(-1), "high": _constant(6)}),
    _each("HardSigmoid", lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1)),
    _each("Exp", np.exp),
    _each("Gelu", lambda x: 0.5 * x * (1 + _erf(x / sqrt(2)))),
    _each("LeakyRelu", lambda x: np.where(x >= 0, x, np.float32(0.01) * x)),
    _each("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    _each("Tanh", np.tanh),
    _each("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    _each("Elu", lambda x: np.where(x >= 0, x, np.expm1(x))),
    _each("Softplus", lambda x: np.logaddexp(0, x)),
    _each("Abs", np.abs),
    _each("Log", np.log),
    _each("Sqrt", np.sqrt),
    _each("Reciprocal", lambda x: 1 / x),
    Case("Max", lambda x: np.maximum(x, -2), {}, {"other": _constant([-2])}),
    Case("Min", lambda x: np.minimum(x, 3), {}, {"other": _constant([3])}),
    Case("Div", lambda x: np.inf / x, {}, {"other": _constant([np.inf])}, first=True),
    Case("Div", lambda x: x / np.float32(3e38), {}, {"other": _constant([3e38])}),
    Case("Div", lambda x: x / np.inf, {}, {"other": _constant([np.inf])}),
)
"""Operators that map each element."""


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def _max_pool(x: Array) -> Array:
    """The greatest elements of windows of 2 x 2 without overlap."""
    n, c, h, w = x.shape
    result: Array = x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    return result


_AXES = {"axes": np.array([1], np.int64)}

COMBINING: Sequence[Case] = (
    Case("ReduceMax", lambda x: x.max(axis=1, keepdims=True), {}, _AXES),
    Case("ReduceMin", lambda x: x.min(axis=1, keepdims=True), {}, _AXES),
    Case("MaxPool", _max_pool, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("GlobalMaxPool", lambda x: x.max(axis=(2, 3), keepdims=True)),
    Case("ReduceMax", lambda x: x.max(axis=(2, 3), keepdims=True), {}, {"axes": np.array([2, 3], np.int64)}),
    Case("Softmax", _softmax, {"axis": 1}),
)
"""Operators whose results come from many elements, of (n, c, h, w)."""


def node_of(case: Case, src: str = "x", dst: str = "y") -> Any:
    """The node of a case."""
    names = [*case.constants, src] if case.first else [src, *case.constants]
    return helper.make_node(case.operator, names, [dst], **case.attributes)
