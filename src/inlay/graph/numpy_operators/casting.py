"""Cast and CastLike: numbers to another type; small floats saturate where the node says so."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float, number_limits, onnx_dtype
from inlay.graph.op import Array


def cast(call: OperatorCall) -> Array:
    """The elements as another type, which `to` names."""
    return converted(call, call.input(0), onnx_dtype(int(call.attribute("to"))))


def cast_like(call: OperatorCall) -> Array:
    """The elements as the type of the second input."""
    return converted(call, call.input(0), call.input(1).dtype)


def converted(call: OperatorCall, src: Array, dtype: np.dtype[Any]) -> Array:
    """Elements of another type: floats to integers are cut, to floats of 8 bits and fewer rounded and saturated."""
    if "e8m0" in dtype.name:
        raise call.unsupported("a conversion to FLOAT8E8M0")
    if is_float(dtype) and dtype.itemsize == 1:
        return _to_small_float(src, dtype, bool(call.attribute("saturate", 1)))
    if not is_float(dtype) and dtype.kind == "V":  # integers of 4 and 2 bits wrap, as wider ones do
        return _to_few_bits(src, dtype)
    if src.dtype.kind == "V" and dtype.kind in "iub":
        src = src.astype(np.float32 if is_float(src.dtype) else np.int32)
    if dtype.kind == "b":
        return np.asarray(src != 0)
    return src.astype(dtype)


def _to_small_float(src: Array, dtype: np.dtype[Any], saturates: bool) -> Array:
    values = src.astype(np.float32)
    if saturates:
        low, high = number_limits(dtype)
        values = np.where(np.isnan(values), values, np.clip(values, low, high))
    return values.astype(dtype)


def _to_few_bits(src: Array, dtype: np.dtype[Any]) -> Array:
    low, high = (int(limit) for limit in number_limits(dtype))
    whole = src.astype(np.float32) if src.dtype.kind == "V" else src
    with np.errstate(all="ignore"):
        numbers = whole.astype(np.int64)
    return ((numbers - low) % (high - low + 1) + low).astype(np.int8).astype(dtype)


CASTING: Mapping[str, Callable[[OperatorCall], Array]] = {"Cast": cast, "CastLike": cast_like}
"""The function of each operator."""
