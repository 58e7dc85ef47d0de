"""Functions of normalizations and reductions, which combine elements along axes.

Statistics of floats of 16 bits are computed in f32. Reductions support floats and integers;
of no elements they return the neutral element of the reduction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float, number_limits, onnx_dtype
from inlay.graph.op_graph import Array

_EPSILON = 1e-5
SCALES_BY_CHANNEL = 21
"""Opset from which on GroupNormalization has a scale for each channel, not for each group."""
_TRAINING = 14  # the opset since which training has an attribute
_ONE_AXIS = 13  # the opset since which the axis of Softmax and Hardmax is one alone


# Normalizations


def batch_normalization(call: OperatorCall) -> tuple[Array, ...]:
    """Compute BatchNormalization; in training, with the statistics of the batch, and return the running statistics too.

    (x - mean) / sqrt(variance + epsilon) * scale + shift
    """
    is_trained = bool(call.attribute("training_mode", 0))
    if call.attribute("spatial", 1) != 1 or (call.opset < _TRAINING and any(map(call.has_output, range(1, 5)))):
        raise call.unsupported("batch normalization in training before opset 14, or with statistics of each place,")
    src = call.input(0)
    working = accumulation_dtype(src.dtype)
    dims = (-1, *(1,) * (src.ndim - 2)) if src.ndim > 1 else (-1,)
    values, parameters = src.astype(working), [call.input(index).astype(working) for index in range(1, 5)]
    mean, variance = parameters[2:]
    results: tuple[Array, ...] = ()
    if is_trained:
        axes = tuple(axis for axis in range(src.ndim) if axis != 1)
        momentum = working.type(call.attribute("momentum", 0.9))
        mean = mean_over(values, axes)
        mean, variance = mean.reshape(-1), mean_over(np.square(values - mean), axes).reshape(-1)
        running = zip(parameters[2:], (mean, variance), (3, 4), strict=True)
        results = tuple((a * momentum + b * (1 - momentum)).astype(call.input(k).dtype) for a, b, k in running)
    scale, shift, mean, variance = (one.reshape(dims) for one in (*parameters[:2], mean, variance))
    epsilon = working.type(call.attribute("epsilon", _EPSILON))
    return (((values - mean) / np.sqrt(variance + epsilon) * scale + shift).astype(src.dtype), *results)


def mean_over(values: Array, axes: int | tuple[int, ...]) -> Array:
    """Return the mean over axes, which stay with extent 1; of no elements it is 0, as in ONNX Runtime."""
    mean = np.mean if values.size else np.sum
    return np.asarray(mean(values, axis=axes, keepdims=True))


def softmax(call: OperatorCall) -> Array:
    """Compute Softmax: along one axis, or before opset 13 over all axes from it on."""
    rows, axis = _rows(call)
    powers = np.exp(rows - rows.max(axis, keepdims=True, initial=-np.inf))
    shares = powers / powers.sum(axis, keepdims=True)
    return np.asarray(shares.reshape(call.input(0).shape).astype(call.input(0).dtype))


def log_softmax(call: OperatorCall) -> Array:
    """Compute LogSoftmax, the logarithm of Softmax."""
    rows, axis = _rows(call)
    shifted = rows - rows.max(axis, keepdims=True, initial=-np.inf)
    total = np.log(np.exp(shifted).sum(axis, keepdims=True))
    return np.asarray((shifted - total).reshape(call.input(0).shape).astype(call.input(0).dtype))


def _rows(call: OperatorCall) -> tuple[Array, int]:
    """Return the elements in f32 or wider, and the axis of Softmax.

    Before opset 13, all axes from the node's axis on are flattened to one.
    """
    src = call.input(0)
    values = src.astype(accumulation_dtype(src.dtype), copy=False)
    axis = call.axis(call.attribute("axis", -1 if call.opset >= _ONE_AXIS else 1), max(src.ndim, 1))
    if call.opset >= _ONE_AXIS:
        return values.reshape(src.shape or (1,)), axis
    return values.reshape(prod(src.shape[:axis]), prod(src.shape[axis:])), 1


def hardmax(call: OperatorCall) -> Array:
    """Compute Hardmax: 1 at the first greatest element, 0 elsewhere; axes as for Softmax."""
    src = call.input(0)
    axis = call.axis(call.attribute("axis", -1 if call.opset >= _ONE_AXIS else 1), src.ndim)
    rows = src if call.opset >= _ONE_AXIS else src.reshape(prod(src.shape[:axis]), prod(src.shape[axis:]))
    along = axis if call.opset >= _ONE_AXIS else 1
    result = np.zeros_like(rows)
    if rows.size:
        np.put_along_axis(result, np.expand_dims(rows.argmax(along), along), 1, along)
    return result.reshape(src.shape)


def lp_normalization(call: OperatorCall) -> Array:
    """Compute LpNormalization: x divided by its L1 or L2 norm along an axis; 0 where the norm is 0."""
    src, p = call.input(0), call.attribute("p", 2)
    axis = call.axis(call.attribute("axis", -1), src.ndim)
    if p not in (1, 2):
        raise call.invalid(f"p is {p}: 1 and 2 are norms")
    size = np.abs(src).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(src).sum(axis, keepdims=True))
    is_zero = size == 0
    return np.asarray(np.where(is_zero, 0, src / np.where(is_zero, 1, size)).astype(src.dtype))


def layer_normalization(call: OperatorCall) -> tuple[Array, ...]:
    """Compute LayerNormalization: mean 0 and variance 1 over the axes from `axis` on.

    The second and third result, mean and 1 / deviation, are float32.
    """
    src, scale, shift = call.input(0), call.input(1), call.optional(2)
    if call.attribute("stash_type", 1) != 1:
        raise call.unsupported("statistics of another type than float32")
    first = call.axis(call.attribute("axis", -1), src.ndim)
    axes, working = tuple(range(first, src.ndim)), accumulation_dtype(src.dtype)
    values = src.astype(working)
    mean = mean_over(values, axes)
    centered = values - mean
    epsilon = working.type(call.attribute("epsilon", _EPSILON))
    inverse = 1 / np.sqrt(mean_over(np.square(centered), axes) + epsilon)
    result = centered * inverse * scale.astype(working)
    if shift is not None:
        result = result + shift.astype(working)
    return result.astype(src.dtype), mean.astype(np.float32), inverse.astype(np.float32)


def group_normalization(call: OperatorCall) -> Array:
    """Compute GroupNormalization: mean 0 and variance 1 over each group of channels.

    Scale and shift are by group in opset 18, by channel from 21 on.
    """
    src, groups = call.input(0), int(call.attribute("num_groups", 0))
    if src.ndim < 2 or groups < 1 or src.shape[1] % groups:
        raise call.invalid(f"{groups} groups do not divide the channels of dims {src.shape}")
    if call.attribute("stash_type", 1) != 1:
        raise call.unsupported("statistics of another type than float32")
    working = accumulation_dtype(src.dtype)
    rows = src.astype(working).reshape(src.shape[0], groups, prod(src.shape[1:]) // groups)
    centered = rows - mean_over(rows, 2)
    epsilon = working.type(call.attribute("epsilon", _EPSILON))
    normal = centered / np.sqrt(mean_over(np.square(centered), 2) + epsilon)
    scales = src.shape[1] if call.opset >= SCALES_BY_CHANNEL else groups
    scale, shift = (call.input(index).astype(working).reshape(1, scales, 1) for index in (1, 2))
    result = normal.reshape(src.shape[0], scales, prod(src.shape[1:]) // scales) * scale + shift
    return np.asarray(result.reshape(src.shape).astype(src.dtype))


def rms_normalization(call: OperatorCall) -> Array:
    """Compute RMSNormalization: x / sqrt(mean of squares + epsilon) * scale, over the axes from `axis` on.

    The result has the type of the scale. Statistics are f64 if the input is, or if the node states so, else f32.
    """
    src, scale = call.input(0), call.input(1)
    stated = accumulation_dtype(onnx_dtype(int(call.attribute("stash_type", 1))))
    working = np.promote_types(accumulation_dtype(src.dtype), stated)
    first = call.axis(call.attribute("axis", -1), src.ndim)
    values = src.astype(working)
    squares = mean_over(np.square(values), tuple(range(first, src.ndim)))
    normal = values / np.sqrt(squares + working.type(call.attribute("epsilon", _EPSILON)))
    return np.asarray((normal * scale.astype(working)).astype(scale.dtype))


def instance_normalization(call: OperatorCall) -> Array:
    """Compute InstanceNormalization: mean 0 and variance 1 over each channel of each image, then scale and shift."""
    src = call.input(0)
    if src.ndim < 2 or any(call.input(index).shape != src.shape[1:2] for index in (1, 2)):
        raise call.invalid(f"its scale and shift do not fit the channels of dims {src.shape}")
    working, axes = accumulation_dtype(src.dtype), tuple(range(2, src.ndim))
    values = src.astype(working)
    centered = values - mean_over(values, axes)
    epsilon = working.type(call.attribute("epsilon", _EPSILON))
    normal = centered / np.sqrt(mean_over(np.square(centered), axes) + epsilon)
    scale, shift = (call.input(index).astype(working).reshape(-1, *(1,) * len(axes)) for index in (1, 2))
    return np.asarray((normal * scale + shift).astype(src.dtype))


def mean_variance(call: OperatorCall) -> Array:
    """Compute MeanVarianceNormalization: (x - mean) / (deviation + 1e-9), over axes 0, 2 and 3 or those it states."""
    src = call.input(0)
    axes = tuple(dict.fromkeys(call.axis(axis, src.ndim) for axis in call.attribute("axes", (0, 2, 3))))
    working = accumulation_dtype(src.dtype)
    values = src.astype(working)
    centered = values - mean_over(values, axes)
    deviation = np.sqrt(mean_over(np.square(centered), axes))
    return np.asarray((centered / (deviation + working.type(1e-9))).astype(src.dtype))


def local_response(call: OperatorCall) -> Array:
    """Compute LRN: x / (bias + alpha / size * sum of squares over `size` channels)^beta.

    A window of even size has one more channel after the middle one than before it.
    """
    src, size = call.input(0), int(call.attribute("size"))
    if src.ndim < 2 or size < 1:
        raise call.invalid(f"a window of {size} channels does not fit dims {src.shape}")
    working = accumulation_dtype(src.dtype)
    alpha, beta, bias = (
        working.type(call.attribute(name, default))
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    squares, channels = np.square(src.astype(working)), src.shape[1]
    total = np.zeros_like(squares)
    for step in range(-min((size - 1) // 2, channels), min(size // 2, channels) + 1):
        targets, sources = slice(max(0, -step), channels - max(0, step)), slice(max(0, step), channels - max(0, -step))
        total[:, targets] += squares[:, sources]
    return np.asarray((src / np.power(bias + alpha / working.type(size) * total, beta)).astype(src.dtype))


# Reductions

Axes: TypeAlias = tuple[int, ...]
"""Numbers of axes, from 0 on."""


@dataclass(frozen=True, slots=True)
class _NumpyReduction:
    """One of ONNX's reductions."""

    compute: Callable[[Array, Axes], Array]
    """Function from the data and the reduced axes to the result, with these axes of length 1."""
    axes_are_input_since: int = 18
    """Opset from which on the axes are an input, not an attribute."""
    is_in_f64: bool = False
    """True if integers are reduced in f64, and the result is truncated."""


def _rule(reduction: _NumpyReduction) -> Callable[[OperatorCall], Array]:
    """Return the function of a reduction."""

    def reduce(call: OperatorCall) -> Array:
        data = call.input(0)
        axes = _axes(call, data.ndim, reduction.axes_are_input_since)
        if axes is None:
            axes = () if call.attribute("noop_with_empty_axes", 0) else tuple(range(data.ndim))
        exact = data.astype(np.float64) if reduction.is_in_f64 and not is_float(data.dtype) else data
        with np.errstate(all="ignore"):
            result = np.asarray(reduction.compute(exact, axes))
        if not call.attribute("keepdims", 1):
            result = result.reshape(tuple(n for i, n in enumerate(data.shape) if i not in axes))
        return _to_dtype(result, data.dtype)

    return reduce


def _to_dtype(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers in the type of the data; clip those that an integer type cannot hold."""
    if is_float(values.dtype) and not is_float(dtype) and dtype.kind != "b":
        low, high = number_limits(dtype)
        # f64 cannot represent 2**63 - 1; the greatest f64 below it is the greatest that converts.
        values = np.clip(np.nan_to_num(values, nan=0.0), low, np.nextafter(high, 0) if high > 2**53 else high)
    return values.astype(dtype, copy=False)


def _axes(call: OperatorCall, count: int, input_since: int) -> Axes | None:
    """Return the axes that the node names, from 0 on; None if it names none."""
    named = call.integers("axes", 1, input_since)
    return tuple(dict.fromkeys(call.axis(axis, count) for axis in named)) if named else None


def _extreme(which: np.ufunc, is_greatest: bool) -> Callable[[Array, Axes], Array]:
    """Return the function of a maximum or minimum, by its NumPy function."""

    def compute(data: Array, axes: Axes) -> Array:
        if data.dtype == bool:
            return np.asarray(which.reduce(data, axis=axes, keepdims=True, initial=not is_greatest))
        if is_float(data.dtype):
            neutral: Any = data.dtype.type(-np.inf if is_greatest else np.inf)
        else:
            info = np.iinfo(data.dtype)
            neutral = info.min if is_greatest else info.max
        return np.asarray(which.reduce(data, axis=axes, keepdims=True, initial=neutral))

    return compute


def _sum(data: Array, axes: Axes) -> Array:
    """Return the sum over axes, in the type of the data."""
    return np.asarray(np.sum(data, axis=axes, keepdims=True, dtype=data.dtype))


def _log_sum_exp(data: Array, axes: Axes) -> Array:
    """Return log(sum(exp(x))), computed without overflow."""
    greatest = _extreme(np.maximum, True)(data, axes)
    shift = np.where(np.isfinite(greatest), greatest, 0)
    return np.asarray(np.log(_sum(np.exp(data - shift), axes)) + shift)


_REDUCTIONS = {
    "ReduceL1": _NumpyReduction(lambda data, axes: _sum(np.abs(data), axes)),
    "ReduceL2": _NumpyReduction(lambda data, axes: np.sqrt(_sum(np.square(data), axes)), is_in_f64=True),
    "ReduceLogSum": _NumpyReduction(lambda data, axes: np.log(_sum(data, axes)), is_in_f64=True),
    "ReduceLogSumExp": _NumpyReduction(_log_sum_exp, is_in_f64=True),
    "ReduceMax": _NumpyReduction(_extreme(np.maximum, True)),
    "ReduceMean": _NumpyReduction(mean_over, is_in_f64=True),
    "ReduceMin": _NumpyReduction(_extreme(np.minimum, False)),
    "ReduceProd": _NumpyReduction(lambda data, axes: np.prod(data, axis=axes, keepdims=True, dtype=data.dtype)),
    "ReduceSum": _NumpyReduction(_sum, axes_are_input_since=13),
    "ReduceSumSquare": _NumpyReduction(lambda data, axes: _sum(np.square(data), axes)),
}


NORMALIZATION: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": log_softmax,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance,
    "RMSNormalization": rms_normalization,
    "Softmax": softmax,
    **{name: _rule(reduction) for name, reduction in _REDUCTIONS.items()},
}
"""Function of each normalization and reduction."""
