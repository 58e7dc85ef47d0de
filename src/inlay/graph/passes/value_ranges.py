"""Value range analysis of an `OpGraph`: bounds of the elements of each tensor, inferred operation by operation.

    x in [-2, 3]    relu          y in [0, 3]
                    convolution   y in [low, high] by the sums of positive and of negative weights of each channel
                    softmax       y in [0, 1]

Bounds hold for results in float32 as well. They stay so far below float32's limit (`FINITE`) that neither rounding nor
the order of a sum can make a number infinite. If an operation may return NaN, or nothing is known about it, the range
says so.

Source: Moore, "Interval Analysis", 1966; Harrison, "Compiler Analysis of the Value Ranges for Variables", 1977.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, isnan, log, log1p, prod, sqrt, tanh
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from ml_dtypes import finfo

from inlay.graph.op_graph import Array, Op
from inlay.layout import Dims
from inlay.primitives.attributes import EltwisePostOp
from inlay.primitives.engine import Parameter
from inlay.primitives.rules import RECURRENT

FINITE = 2.0**115
"""Largest magnitude that counts as finite, for operations that treat NaN or infinities wrongly."""
SQUARABLE = 2.0**54
"""Largest magnitude that counts as finite, for operations that sum squares or cubes."""
_LARGEST = 2.0**127
"""Bounds of this magnitude or more count as infinite."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Least and greatest possible element of a tensor."""

    low: float
    """Lower bound of the elements; -inf if an element may be -inf."""
    high: float
    """Upper bound of the elements; inf if an element may be inf."""
    may_be_nan: bool = False
    """True if an element may be NaN."""
    peak: float = -inf
    """Lower bound of the greatest element of each row along the last axis, where it is known to exceed `low`."""

    @property
    def magnitude(self) -> float:
        """Largest magnitude of an element that is not NaN."""
        return max(-self.low, self.high, 0.0)

    @property
    def is_finite(self) -> bool:
        """True if no element is NaN, infinite, or nearly infinite."""
        return not self.may_be_nan and self.magnitude <= FINITE


ANY = ValueRange(-inf, inf, True)
"""Range of a tensor about which nothing is known."""
BOOLEAN = ValueRange(0.0, 1.0)
"""Range of truth values."""

Ranges: TypeAlias = Mapping[str, ValueRange]
"""Ranges by argument, constants included."""
_Rule: TypeAlias = Callable[[Op, Ranges, Mapping[str, Dims]], ValueRange]
"""Function from an operation, and the ranges and dims of its arguments, to the range of its results."""


def bounded(low: float, high: float, may_be_nan: bool = False) -> ValueRange:
    """Return a range; bounds beyond float32 become infinite, and a NaN as bound makes the range `ANY`."""
    if isnan(low) or isnan(high):
        return ANY
    low, high = (end if abs(end) < _LARGEST else end * inf for end in (low, high))
    return ValueRange(low, high, may_be_nan)


def symmetric(magnitude: float, may_be_nan: bool = False) -> ValueRange:
    """Return the range from -magnitude to magnitude."""
    return bounded(-magnitude, magnitude, may_be_nan)


def hull(ranges: Iterable[ValueRange]) -> ValueRange:
    """Return the smallest range that contains all of these; there must be at least one."""
    known = tuple(ranges)
    low, high = min(one.low for one in known), max(one.high for one in known)
    return ValueRange(low, high, any(one.may_be_nan for one in known))


def range_of_dtype(dtype: np.dtype[Any]) -> ValueRange:
    """Return the range of any tensor of a type."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return ValueRange(float(info.min), float(info.max))
    return BOOLEAN if dtype.kind == "b" else ANY


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is one of floating-point numbers of NumPy, or bfloat16."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def stored_range(known: ValueRange, dtype: np.dtype[Any]) -> ValueRange:
    """Return the range of a tensor of a type whose elements are computed with bounds `known`, before they are rounded.

    A number beyond the largest one of a floating-point type becomes infinite; any integer may result from a number.

    >>> stored_range(ValueRange(-1.0, 1e5), np.dtype(np.float16))
    ValueRange(low=-1.0, high=inf, may_be_nan=False, peak=-inf)
    """
    if not is_float(dtype):
        return range_of_dtype(dtype)
    largest = float(finfo(dtype).max)  # type: ignore[no-untyped-call]
    if known.magnitude < largest:
        return known
    low, high, peak = (end if abs(end) < largest else end * inf for end in (known.low, known.high, known.peak))
    return ValueRange(low, high, known.may_be_nan, peak if peak < inf else largest)


def range_of_array(array: Array) -> ValueRange:
    """Return the range of a constant's elements.

    >>> range_of_array(np.float32([[0, -inf], [0, 1]]))
    ValueRange(low=-inf, high=1.0, may_be_nan=False, peak=0.0)
    """
    array = widened(array)
    if array.dtype.kind in "biu":
        return BOOLEAN if array.dtype.kind == "b" or not array.size else bounded(float(array.min()), float(array.max()))
    if array.dtype.kind != "f" or not array.size:
        return ANY if array.size else ValueRange(0.0, 0.0)
    found = bounded(float(array.min()), float(array.max()))
    is_masked = found.low == -inf and array.ndim and not found.may_be_nan
    return replace(found, peak=float(array.max(axis=-1).min())) if is_masked else found


def widened(array: Array) -> Array:
    """Return the elements of a bf16 or f16 array as f32; any other array as it is."""
    return array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array


def infer_range(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of every result of a primitive or view, from the ranges and dims of its arguments.

    Of the results of a dynamic quantization it is that of the scale: `result_range` knows the others.
    """
    rule = _QUANTIZED_RULES.get(op.kind) if op.attributes.value_names else _RULES.get(op.kind)
    return ANY if rule is None else rule(op, ranges, dims)


def result_range(op: Op, argument: str, inferred: ValueRange, dtype: np.dtype[Any]) -> ValueRange:
    """Return the range of one result of an operation, which has this type, from what `infer_range` returns."""
    if (op.kind, argument) == ("dynamic_quantization", "zero_point"):
        return range_of_dtype(np.dtype(np.uint8))
    return stored_range(inferred, dtype)


# What NumPy computes

_MOVED = (
    "Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Max Min Pad Reshape "
    "ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze Where"
)
"""Names of the operators of `_MOVED_OPERATORS`."""
_MOVED_OPERATORS = frozenset(_MOVED.split())
"""Operators whose results are elements of their inputs, or 0."""
_UNIT = frozenset(("Cos", "Erf", "Sign", "Sin", "Softmax", "Tanh", "Sigmoid", "Hardmax"))
"""Operators whose results are in [-1, 1] for finite elements."""


def infer_reference_range(operator: str, ranges: Iterable[ValueRange]) -> ValueRange:
    """Return the range of an operator that NumPy computes, from the ranges of its inputs."""
    known = tuple(ranges)
    if operator in _MOVED_OPERATORS:
        return hull((*known, ValueRange(0.0, 0.0)))
    if operator == "Cast" and known[0].is_finite:
        return known[0]
    if operator in _UNIT and all(one.is_finite for one in known):
        return symmetric(1.0)
    return ANY


# Sums and products


def _add(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the range of a sum."""
    opposed = (one.low == -inf and other.high == inf) or (one.high == inf and other.low == -inf)
    may_be_nan = one.may_be_nan or other.may_be_nan or opposed
    low, high = one.low + other.low, one.high + other.high
    total = bounded(-inf if isnan(low) else low, inf if isnan(high) else high, may_be_nan)
    return total if may_be_nan else replace(total, peak=max(_peak_of_sum(one, other), _peak_of_sum(other, one)))


def _peak_of_sum(one: ValueRange, other: ValueRange) -> float:
    """Return the least sum of a row's greatest element and an element of another tensor; -inf if it may be infinite."""
    total = one.peak + other.low
    return total if abs(total) < _LARGEST else -inf


def _negative(one: ValueRange) -> ValueRange:
    """Return the range of -x."""
    return ValueRange(-one.high, -one.low, one.may_be_nan)


def _multiply(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the range of a product; `ANY` if a factor may be infinite."""
    if not (isfinite(one.magnitude) and isfinite(other.magnitude)):
        return ANY
    ends = [a * b for a in (one.low, one.high) for b in (other.low, other.high)]
    return bounded(min(ends), max(ends), one.may_be_nan or other.may_be_nan)


def _divide(one: ValueRange, other: ValueRange) -> ValueRange:
    """Return the range of a quotient; `ANY` if the divisor may be 0 or infinite."""
    if other.low <= 0 <= other.high or not isfinite(other.magnitude):
        return ANY
    return _multiply(one, bounded(1 / other.high, 1 / other.low, other.may_be_nan))


def _clamped(choose: Callable[[float, float], float]) -> Callable[[ValueRange, ValueRange], ValueRange]:
    """Return the rule of an element-wise maximum or minimum, by Python's function for numbers."""

    def rule(one: ValueRange, other: ValueRange) -> ValueRange:
        low, high = choose(one.low, other.low), choose(one.high, other.high)
        return ValueRange(low, high, one.may_be_nan or other.may_be_nan)

    return rule


_BINARY: Mapping[str, Callable[[ValueRange, ValueRange], ValueRange]] = {
    "add": _add,
    "sub": lambda one, other: _add(one, _negative(other)),
    "mul": _multiply,
    "div": _divide,
    "max": _clamped(max),
    "min": _clamped(min),
}
"""Rule of each algorithm of binary."""


def _binary(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of an element-wise operation on two tensors."""
    rule = _BINARY.get(str(op.parameters["algorithm"]))
    if rule is None:
        return ANY
    result = rule(ranges["src_0"], ranges["src_1"])
    is_square = op.parameters["algorithm"] == "mul" and op.reads.get("src_0") == op.reads.get("src_1")
    return ValueRange(max(result.low, 0.0), result.high, result.may_be_nan) if is_square else result


def _sum(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a weighted sum of tensors."""
    scales = op.parameters["scales"]
    assert isinstance(scales, tuple)
    total = ValueRange(0.0, 0.0)
    for one, scale in zip(ranges.values(), scales, strict=True):
        total = _add(total, _multiply(one, symmetric(abs(float(scale)))))
    return total


def _weighted(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a linear map, from the sums of positive and of negative weights of each result."""
    src, weights = ranges["src"], ranges["weights"]
    if not (src.is_finite and weights.is_finite):
        return ANY
    low, high = min(src.low, 0.0), max(src.high, 0.0)  # padding is 0
    if "weights" in op.constants:
        positive, negative = signed_sums(op.constants["weights"], op.kind, grouped=_is_grouped(op, dims))
        least, most = (positive * low - negative * high).min(), (positive * high - negative * low).max()
        product = bounded(float(least), float(most))
        # Partial sums are no greater than if all terms had one sign.
        if float((positive + negative).max()) * src.magnitude > FINITE:
            return ANY
    else:
        product = symmetric(dims["src"][-1] * src.magnitude * weights.magnitude)
    return _add(product, ranges["bias"]) if "bias" in ranges else product


_Sums: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

_lock = threading.Lock()
_cached_sums: dict[tuple[int, str, bool], tuple["weakref.ref[Any]", _Sums]] = {}
"""Sums by identity of the array, kind and grouping; a weak reference tells whether the array still exists."""


def signed_sums(weights: Array, kind: str, *, grouped: bool = False) -> _Sums:
    """Return the sums of the positive weights, and of the magnitudes of the negative ones, for each result.

    `weights` are finite, and those of a primitive of this kind; `grouped` tells that a convolution's weights have
    groups. The sums of an array are cached while the array exists.

    >>> positive, negative = signed_sums(np.array([[1.0, -2.0], [3.0, 4.0]], np.float32), "inner_product")
    >>> positive.tolist(), negative.tolist()
    ([1.0, 7.0], [2.0, 0.0])
    """
    key = id(weights), kind, grouped
    with _lock:
        entry = _cached_sums.get(key)
    if entry is not None and entry[0]() is weights:
        return entry[1]
    axes = (weights.ndim - 2,) if kind == "matmul" else tuple(range(1 + grouped, weights.ndim))
    sums = _sum_by_sign(widened(weights), axes)
    with _lock:
        _cached_sums[key] = weakref.ref(weights, lambda _: _cached_sums.pop(key, None)), sums
    return sums


def _sum_by_sign(weights: Array, axes: tuple[int, ...]) -> _Sums:
    """Return the sums of positive weights and of magnitudes of negative weights over some axes.

    A sum of many weights in float32 is exact to a few millionths; the bounds have far larger margins.
    """
    weights = weights.astype(np.int32) if weights.dtype.kind in "iu" else weights  # no s8 is the magnitude of -128
    total = weights.sum(axis=axes, dtype=np.float64 if weights.size < 1 << 16 else None)
    magnitude = np.abs(weights).sum(axis=axes)
    return (magnitude + total) / np.float64(2), (magnitude - total) / np.float64(2)


def _is_grouped(op: Op, dims: Mapping[str, Dims]) -> bool:
    """Return whether the weights of a convolution have an axis of groups."""
    return op.kind in ("convolution", "deconvolution") and len(dims["weights"]) == len(dims["src"]) + 1


# Quantized elements


def _dynamic_quantization(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of the scale of a dynamic quantization; it is 1 if all elements are 0."""
    src = ranges["src"]
    if not src.is_finite:
        return ANY
    return bounded(0.0, max(1.0, (max(src.high, 0.0) - min(src.low, 0.0)) / 255))


def _real_magnitude(argument: str, ranges: Ranges) -> float:
    """Return the largest magnitude of the numbers that an argument represents, by its scales and zero points."""
    none, one = ValueRange(0.0, 0.0), ValueRange(1.0, 1.0)
    shifted = _add(ranges[argument], _negative(ranges.get(f"{argument}_zero_points", none)))
    real = _multiply(shifted, ranges.get(f"{argument}_scales", one))
    return inf if real.may_be_nan else real.magnitude


def _range_of_result(op: Op, real: ValueRange, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range after the functions that an operation has of its own; `ANY` if its result is quantized."""
    if {"dst_scales", "dst_zero_points"}.intersection(op.attributes.value_names):
        return ANY
    for function in op.attributes.post_ops:
        if not isinstance(function, EltwisePostOp):
            return ANY
        algorithm, alpha, beta = function.algorithm, function.alpha, function.beta
        function_op = replace(op, parameters={"algorithm": algorithm, "alpha": alpha, "beta": beta})
        real = _eltwise(function_op, {"src": real}, dims)
    return real


def _dequantizing_reorder(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a reorder that dequantizes."""
    magnitude = _real_magnitude("src", ranges)
    return _range_of_result(op, symmetric(magnitude), dims) if magnitude <= FINITE else ANY


def _quantized_product(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a linear map of integers, from the sums of the magnitudes of its weights."""
    src, terms = _real_magnitude("src", ranges), _count_terms(op, dims)
    if "weights" in op.constants and "weights_scales" in op.constants:
        sums = sum(signed_sums(op.constants["weights"], op.kind, grouped=_is_grouped(op, dims)))
        scales = np.abs(widened(op.constants["weights_scales"]).astype(np.float64)).reshape(-1)
        sums = np.asarray(sums) + terms * ranges.get("weights_zero_points", ValueRange(0.0, 0.0)).magnitude
        factors = scales if sums.size % scales.size == 0 else scales.max()
        weights = float((sums.reshape(-1, np.size(factors)) * factors).max())
    else:
        weights = terms * _real_magnitude("weights", ranges)
    product = src * weights
    if not product <= FINITE:
        return ANY
    real = _add(symmetric(product), ranges["bias"]) if "bias" in ranges else symmetric(product)
    return _range_of_result(op, real, dims)


def _count_terms(op: Op, dims: Mapping[str, Dims]) -> int:
    """Return the number of products that are added to one element of the result of a linear map."""
    if op.kind == "matmul":
        return dims["src"][-1]
    return prod(dims["weights"]) // (dims["weights"][0] * (dims["weights"][1] if _is_grouped(op, dims) else 1))


_QUANTIZED_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("convolution", "deconvolution", "matmul"), _quantized_product),
    "reorder": _dequantizing_reorder,
}
"""Rule of each kind of operation with scales and zero points."""


# Functions of one element


def _number(op: Op, name: str) -> float:
    """Return a parameter of an operation as a float."""
    value: Parameter = op.parameters[name]
    assert isinstance(value, (int, float))
    return float(value)


def _monotone(function: Callable[[float, float, float], float]) -> _Rule:
    """Return the rule of an eltwise algorithm that is a monotone function of x, alpha and beta."""

    def rule(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
        src, alpha, beta = ranges["src"], _number(op, "alpha"), _number(op, "beta")
        ends = [function(end, alpha, beta) for end in (src.low, src.high)]
        return bounded(min(ends), max(ends), src.may_be_nan)

    return rule


def _relu(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a ReLU, which may have a negative slope."""
    src, alpha = ranges["src"], _number(op, "alpha")
    ends = [end if end > 0 else alpha * end if alpha else 0.0 for end in (src.low, src.high, 0.0)]
    return bounded(min(ends), max(ends), src.may_be_nan)


def _gated(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of x times a factor from 0 to 1."""
    src = ranges["src"]
    may_be_nan = src.may_be_nan or src.low == -inf
    return ValueRange(min(src.low, 0.0), max(src.high, 0.0), may_be_nan)


def _pow(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of alpha x^beta; `ANY` unless the exponent is a natural number or x is positive."""
    src, factor, exponent = ranges["src"], _number(op, "alpha"), _number(op, "beta")
    if exponent >= 0 and exponent.is_integer() and isfinite(src.magnitude):
        return symmetric(abs(factor) * _power(max(src.magnitude, 1.0), exponent), src.may_be_nan)
    if src.low > 0 and isfinite(src.high):
        ends = [factor * _power(end, exponent) for end in (src.low, src.high)]
        return bounded(min(ends), max(ends), src.may_be_nan)
    return ANY


def _power(base: float, exponent: float) -> float:
    """Return a power of a positive number, limited to about 1e304."""
    return exp(min(700.0, exponent * log(base)))


def _clip(x: float, low: float, high: float) -> float:
    """Return x clipped to [low, high]."""
    return min(max(x, low), high)


def _square_root(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a square root; `ANY` if x may be negative."""
    src = ranges["src"]
    return ANY if src.low < 0 else ValueRange(sqrt(src.low), sqrt(src.high), src.may_be_nan)


def _logarithm(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a logarithm; `ANY` unless x is positive and finite."""
    src = ranges["src"]
    if src.low <= 0 or not isfinite(src.high):
        return ANY
    return bounded(log(src.low), log(src.high), src.may_be_nan)


_ELTWISE: Mapping[str, _Rule] = {
    "abs": lambda op, ranges, dims: ValueRange(0.0, ranges["src"].magnitude, ranges["src"].may_be_nan),
    **dict.fromkeys(("clip", "clip_v2"), _monotone(_clip)),
    "elu": _monotone(lambda x, a, b: x if x > 0 else a * (exp(x) - 1)),
    "exp": _monotone(lambda x, a, b: exp(min(x, 700.0))),
    "gelu_erf": _gated,
    "gelu_tanh": _gated,
    "hardsigmoid": _monotone(lambda x, a, b: _clip(a * x + b if a else b, 0.0, 1.0)),
    "hardswish": _gated,
    "linear": _monotone(lambda x, a, b: (a * x if a else 0.0) + b),
    "log": _logarithm,
    "logistic": _monotone(lambda x, a, b: 1 / (1 + exp(min(-x, 700.0)))),
    "mish": _gated,
    "pow": _pow,
    "relu": _relu,
    "round": _monotone(lambda x, a, b: x + 1.0 if x > 0 else x - 1.0),
    "soft_relu": _monotone(lambda x, a, b: max(a * x, 0.0) / a + log1p(exp(-abs(a * x))) / a),
    "sqrt": _square_root,
    "square": lambda op, ranges, dims: bounded(0.0, ranges["src"].magnitude ** 2, ranges["src"].may_be_nan),
    "swish": _gated,
    "tanh": _monotone(lambda x, a, b: tanh(x)),
}
"""Rule of each algorithm of eltwise."""


def _eltwise(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a function of each element."""
    rule = _ELTWISE.get(str(op.parameters["algorithm"]))
    return ANY if rule is None or isnan(ranges["src"].low) else rule(op, ranges, dims)


# Windows, reductions, normalizations


def _pooling(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a pooling; an average may count padding, which is 0."""
    src = ranges["src"]
    return src if op.parameters["algorithm"] == "max" else hull((src, ValueRange(0.0, 0.0)))


def _reduction(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a reduction."""
    src, algorithm = ranges["src"], str(op.parameters["algorithm"])
    if not isfinite(src.magnitude):
        return ANY
    if algorithm in ("max", "min", "mean"):
        return src
    count, p = prod(dims["src"]) // max(prod(dims["dst"]), 1), _number(op, "p")
    if algorithm == "sum":
        return bounded(count * src.low, count * src.high, src.may_be_nan)
    if algorithm in ("norm_lp_sum", "norm_lp_power_p_sum"):
        total = count * _power(max(src.magnitude, 1.0), p)
        return bounded(0.0, total if "power" in algorithm else count * src.magnitude, src.may_be_nan)
    return symmetric(_power(max(src.magnitude, 1.0), float(count)), src.may_be_nan)


def _batch_normalization(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a batch normalization with given statistics."""
    variance = ranges["variance"].low + _number(op, "epsilon")
    if variance <= 0 or not all(one.is_finite for one in ranges.values()):
        return ANY
    factor = ranges["scale"].magnitude / sqrt(variance) if "scale" in ranges else 1 / sqrt(variance)
    shift = ranges["shift"].magnitude if "shift" in ranges else 0.0
    return symmetric(factor * (ranges["src"].magnitude + ranges["mean"].magnitude) + shift)


def _layer_normalization(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a layer normalization.

    With given statistics, it is that of a batch normalization. Else no element of a row exceeds the square root of the
    row's length times the root of its mean square.
    """
    if not all(one.is_finite for one in ranges.values()):
        return ANY
    if "mean" in ranges:
        return _batch_normalization(op, ranges, dims)
    normal = symmetric(2 * sqrt(dims["src"][-1]))
    scaled = _multiply(normal, ranges["scale"]) if "scale" in ranges else normal
    return _add(scaled, ranges["shift"]) if "shift" in ranges else scaled


def _lrn(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a local response normalization."""
    k, src = _number(op, "k"), ranges["src"]
    if k <= 0 or _number(op, "alpha") < 0 or not isfinite(src.magnitude):
        return ANY
    return symmetric(src.magnitude * max(1.0, _power(k, -_number(op, "beta"))), src.may_be_nan)


def _softmax(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a softmax; a row of which all elements are -inf gives NaN."""
    src = ranges["src"]
    if src.may_be_nan or not isfinite(src.high):
        return ANY
    axis = op.parameters["axis"]
    assert isinstance(axis, int)
    if op.parameters["algorithm"] == "log":
        return bounded(src.low - src.high - log(dims["src"][axis]) - 1, 1.0, src.low == -inf)
    is_last = axis == len(dims["src"]) - 1
    return ValueRange(0.0, 2.0, (max(src.low, src.peak) if is_last else src.low) == -inf)


def _recurrent(op: Op, ranges: Ranges, dims: Mapping[str, Dims]) -> ValueRange:
    """Return the range of a recurrent layer.

    States are weighted means of old states and results of tanh; the cell of an LSTM grows by at most 1 in each step.
    """
    activation = op.parameters.get("activation", "tanh")
    if activation not in ("tanh", "logistic") or not all(one.is_finite for one in ranges.values()):
        return ANY
    states = [ranges[name].magnitude for name in ("src_iter", "src_iter_c") if name in ranges]
    return symmetric(max([1.0, *states]) + dims["src_layer"][0])


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("view", "concat", "shuffle", "resampling"), lambda op, ranges, dims: hull(ranges.values())),
    **dict.fromkeys(("convolution", "deconvolution", "inner_product", "matmul"), _weighted),
    **dict.fromkeys(RECURRENT, _recurrent),
    "batch_normalization": _batch_normalization,
    "binary": _binary,
    "dynamic_quantization": _dynamic_quantization,
    "eltwise": _eltwise,
    "layer_normalization": _layer_normalization,
    "lrn": _lrn,
    "pooling": _pooling,
    "prelu": lambda op, ranges, dims: hull((ranges["src"], _multiply(ranges["src"], ranges["weights"]))),
    "reduction": _reduction,
    "reorder": lambda op, ranges, dims: infer_reference_range("Cast", ranges.values()),
    "softmax": _softmax,
    "sum": _sum,
}
"""Rule of each kind of operation."""
