"""QuantizeLinear and DequantizeLinear: by tensor, by axis, and by blocks of an axis; integers and small floats."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float, number_limits, onnx_dtype
from inlay.graph.op import Array

_F32 = np.dtype(np.float32)


def dequantize_linear(call: OperatorCall) -> Array:
    """(x - zero point) * scale, in f32; of the type of the scale, or `output_dtype`."""
    src, scale = call.input(0), call.input(1)
    zero = call.optional(2)
    if zero is not None and zero.dtype != src.dtype:
        raise call.invalid(f"its zero point is {zero.dtype}, and x is {src.dtype}: they must be the same")
    working = _F32 if is_float(src.dtype) else np.dtype(np.int64)
    moved = src.astype(working)
    if zero is not None:
        moved = moved - _spread(call, zero, src.shape).astype(working)
    result = moved.astype(_F32) * _spread(call, scale, src.shape).astype(_F32)
    wanted = int(call.attribute("output_dtype", 0))
    return result.astype(onnx_dtype(wanted) if wanted else scale.dtype)


def quantize_linear(call: OperatorCall) -> Array:
    """Saturated round(x / scale) + zero point, halves to even."""
    src, scale = call.input(0), call.input(1)
    zero, wanted = call.optional(2), int(call.attribute("output_dtype", 0))
    dtype = zero.dtype if zero is not None else onnx_dtype(wanted) if wanted else np.dtype(np.uint8)
    precision = int(call.attribute("precision", 0))
    working = onnx_dtype(precision) if precision else _F32
    quotient = (src.astype(working) / _spread(call, scale, src.shape).astype(working)).astype(_F32)
    if is_float(dtype):
        if zero is not None:
            quotient = quotient + _spread(call, zero, src.shape).astype(_F32)
        return _to_small_float(quotient, dtype, bool(call.attribute("saturate", 1)))
    whole = np.rint(quotient)
    if zero is not None:
        whole = whole + _spread(call, zero, src.shape).astype(_F32)
    low, high = number_limits(dtype)
    within = np.clip(np.nan_to_num(whole, nan=0.0, posinf=high, neginf=low), low, high)
    return np.asarray(within.astype(np.int32).astype(dtype))


def _to_small_float(values: Array, dtype: np.dtype[Any], saturates: bool) -> Array:
    """Rounded to an 8-bit or smaller float; what is too large becomes its greatest number, NaN stays."""
    if saturates or not _has_specials(dtype):
        low, high = number_limits(dtype)
        values = np.where(np.isnan(values), values, np.clip(values, low, high))
    return values.astype(dtype)


def _has_specials(dtype: np.dtype[Any]) -> bool:
    return bool(np.isnan(np.float32(np.nan).astype(dtype).astype(np.float32)))


def _spread(call: OperatorCall, parameter: Array, dims: tuple[int, ...]) -> Array:
    """A scale or zero point for each element: one number, a vector along `axis`, or a number for each block of it."""
    block = int(call.attribute("block_size", 0))
    if parameter.size == 1 and parameter.ndim <= 1 and not block:
        return parameter.reshape(())
    axis = call.axis(int(call.attribute("axis", 1)), len(dims)) if dims else 0
    if block:
        blocks = tuple(-(-n // block) if i == axis else n for i, n in enumerate(dims))
        if parameter.shape != blocks:
            raise call.invalid(f"dims {parameter.shape} are not those of blocks of {block} along axis {axis}, {blocks}")
        return np.repeat(parameter, block, axis)[tuple(slice(n) for n in dims)]
    if parameter.ndim != 1 or not dims or parameter.shape[0] != dims[axis]:
        raise call.invalid(f"a scale of dims {parameter.shape} fits no axis {axis} of dims {dims}")
    return parameter.reshape(tuple(n if i == axis else 1 for i, n in enumerate(dims)))


QUANTIZATION: Mapping[str, Callable[[OperatorCall], Array]] = {
    "DequantizeLinear": dequantize_linear,
    "QuantizeLinear": quantize_linear,
}
"""The function of each operator."""
