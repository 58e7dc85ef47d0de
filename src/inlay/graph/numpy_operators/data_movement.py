"""Functions of operators that move elements, or convert each one to another type.

- **Slice** with any steps, and **Unsqueeze** with axes in any order. - **Pad**: elements before and after; negative
padding removes elements. - **Gather and Scatter** in all forms; an index out of range is an error, never another
element. - **Cast and CastLike** to any type; conversions to small floats saturate if the node states so. - **Pow** of
integers and floats in any combination. - **QuantizeLinear and DequantizeLinear** by tensor, by axis, and by blocks of
an axis, for integers and small floats.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, is_float, number_limits, onnx_dtype
from inlay.graph.op_graph import Array

# Slice and Unsqueeze


def take_slice(call: OperatorCall) -> Array:
    """Compute Slice: every `step`-th element from a start to an end of some axes.

    Starts and ends beyond an axis are clamped to it.
    """
    src = call.input(0)
    names = ("starts", "ends", "axes", "steps")
    starts, ends, named, steps = (call.integers(name, index, 10) for index, name in enumerate(names, 1))
    starts, ends = starts or [], ends or []
    axes = range(len(starts)) if named is None else [call.axis(axis, src.ndim) for axis in named]
    strides = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(strides) or 0 in strides or len(starts) > src.ndim:
        raise call.invalid(f"starts {starts}, ends {ends}, axes {named} and steps {steps} do not fit {src.ndim} axes")
    slices = [slice(None)] * src.ndim
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        slices[axis] = _clamped_slice(src.shape[axis], start, end, step)
    return src[tuple(slices)]


def _clamped_slice(n: int, start: int, end: int, step: int) -> slice:
    """Return the slice of an axis of `n` elements, with start and end clamped as ONNX specifies."""
    start, end = (at + n if at < 0 else at for at in (start, end))
    if step > 0:
        return slice(min(max(start, 0), n), min(max(end, 0), n), step)
    first, last = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
    return slice(first, None if last < 0 else last, step) if n else slice(0, 0)


def unsqueeze(call: OperatorCall) -> Array:
    """Compute Unsqueeze: insert axes of length 1 at these positions of the result."""
    src = call.input(0)
    named = call.integers("axes", 1, 13) or []
    axes = tuple(call.axis(axis, src.ndim + len(named)) for axis in named)
    if len(set(axes)) < len(axes):
        raise call.invalid(f"axes {named} name one twice")
    return np.expand_dims(src, axes)


# Pad
PAD_MODES = ("constant", "reflect", "edge", "wrap")
"""Values of the attribute `mode` of Pad."""


def pad(call: OperatorCall) -> Array:
    """Compute Pad: first remove elements where padding is negative, then add the others."""
    data = call.input(0)
    pads, named = call.integers("pads", 1, 11) or [], call.optional(3)
    axes = range(data.ndim) if named is None else [call.axis(int(axis), data.ndim) for axis in named.reshape(-1)]
    if len(pads) != 2 * len(axes):
        raise call.invalid(f"{len(pads)} numbers pad {len(axes)} axes, which need {2 * len(axes)}")
    before, behind = [0] * data.ndim, [0] * data.ndim
    for k, axis in enumerate(axes):
        before[axis], behind[axis] = pads[k], pads[k + len(axes)]
    sides = list(zip(before, behind, data.shape, strict=True))
    if any(n + min(a, 0) + min(b, 0) < 0 for a, b, n in sides):
        raise call.invalid(f"padding {pads} removes more than dims {data.shape} have")
    cut = data[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in sides)]
    return _pad_array(call, cut, [(max(a, 0), max(b, 0)) for a, b, _ in sides])


def _pad_array(call: OperatorCall, data: Array, widths: list[tuple[int, int]]) -> Array:
    """Return `data` with elements added before and after each axis, by the node's mode."""
    mode = call.attribute("mode", "constant")
    if mode not in PAD_MODES:
        raise call.invalid(f"mode {mode!r} is none of {', '.join(PAD_MODES)}")
    if mode == "constant":
        dims = tuple(a + n + b for (a, b), n in zip(widths, data.shape, strict=True))
        result = call.destination(dims, data.dtype)
        result[...] = _pad_value(call, data.dtype)
        result[tuple(slice(a, a + n) for (a, _), n in zip(widths, data.shape, strict=True))] = data
        return result
    if any(n == 0 and (a or b) for (a, b), n in zip(widths, data.shape, strict=True)):
        raise call.invalid(f"mode {mode} cannot pad an axis without elements")
    extend: Any = np.pad
    return np.asarray(extend(data, widths, mode=mode))


def _pad_value(call: OperatorCall, dtype: np.dtype[Any]) -> Any:
    """Return the value of constant padding."""
    if call.opset < 11:
        return dtype.type(call.attribute("value", 0.0))
    value = call.optional(2)
    return np.zeros((), dtype) if value is None or value.size == 0 else value.reshape(-1)[0]


# Gather and Scatter


def gather(call: OperatorCall) -> Array:
    """Compute Gather: slices along one axis."""
    data = call.input(0)
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    indices = call.require_indices(1, data.shape[axis], axis)
    result = call.destination(data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.dtype)
    if result.size:  # `clip` writes without a buffer, and no index is out of range
        np.take(data, indices, axis, out=result, mode="clip")
    return result


def gather_elements(call: OperatorCall) -> Array:
    """Compute GatherElements: one element for each index, from the row of the index."""
    data, indices = call.input(0), call.input(1)
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    rows = _rows_with_indices(call, data, indices, axis)
    return np.take_along_axis(data[rows], call.require_indices(1, data.shape[axis], axis), axis)


def scatter_elements(call: OperatorCall) -> Array:
    """Compute ScatterElements: the data with one element replaced, or combined, for each index."""
    data, indices, updates = (call.input(index) for index in range(3))
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    if updates.shape != indices.shape:
        raise call.invalid(f"updates have dims {updates.shape}, indices {indices.shape}: they must be the same")
    _rows_with_indices(call, data, indices, axis)
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = call.require_indices(1, data.shape[axis], axis)
    result = _copied(call, data)
    _scatter(call, result, tuple(grid), updates)
    return result


def _rows_with_indices(call: OperatorCall, data: Array, indices: Array, axis: int) -> tuple[slice, ...]:
    """Return the part of `data` whose rows have indices; raise InvalidArguments if dims do not fit."""
    if data.ndim != indices.ndim or data.ndim == 0:
        raise call.invalid(f"indices have {indices.ndim} axes, the data {data.ndim}: they must be as many, 1 or more")
    if any(n > of for i, (n, of) in enumerate(zip(indices.shape, data.shape, strict=True)) if i != axis):
        raise call.invalid(f"indices of dims {indices.shape} exceed the data's, {data.shape}")
    return tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))


def gather_nd(call: OperatorCall) -> Array:
    """Compute GatherND: one slice for each tuple of indices."""
    data, indices = call.input(0), call.input(1)
    batch = int(call.attribute("batch_dims", 0))
    tuples = _split_tuples(call, data, indices, batch)
    lead = np.ogrid[tuple(slice(n) for n in data.shape[:batch])]
    spread = indices.ndim - 1 - batch
    first = [axis.reshape(axis.shape + (1,) * spread) for axis in lead]
    return np.asarray(data[(*first, *tuples)])


def scatter_nd(call: OperatorCall) -> Array:
    """Compute ScatterND: the data with one slice replaced, or combined, for each tuple of indices."""
    data, indices, updates = (call.input(index) for index in range(3))
    tuples = _split_tuples(call, data, indices, 0)
    dims = indices.shape[:-1] + data.shape[indices.shape[-1] :]
    if updates.shape != dims:
        raise call.invalid(f"updates have dims {updates.shape}, and data and indices ask for {dims}")
    result = _copied(call, data)
    _scatter(call, result, tuples, updates)
    return result


def _split_tuples(call: OperatorCall, data: Array, indices: Array, batch: int) -> tuple[Array, ...]:
    """Return the tuples of indices as one array per axis, after `batch` axes."""
    if indices.ndim < 1 + batch or not 0 <= batch <= data.ndim or indices.shape[-1] > data.ndim - batch:
        raise call.invalid(f"indices of dims {indices.shape} do not fit data of dims {data.shape}")
    if indices.shape[:batch] != data.shape[:batch]:
        raise call.invalid(f"the {batch} axes of batches differ: {indices.shape} and {data.shape}")
    return tuple(
        call.require_indices(1, data.shape[batch + k], batch + k, indices[..., k]) for k in range(indices.shape[-1])
    )


def _copied(call: OperatorCall, data: Array) -> Array:
    """Return a copy of the data, in the call's memory where that fits."""
    result = call.destination(data.shape, data.dtype)
    np.copyto(result, data)
    return result


def _scatter(call: OperatorCall, result: Array, where: tuple[Array, ...], updates: Array) -> None:
    """Write updates into the result, or combine them with its elements by the node's reduction."""
    reduction = call.attribute("reduction", "none")
    if reduction not in SCATTER_REDUCTIONS:
        raise call.invalid(f"reduction {reduction!r} is none of {', '.join(SCATTER_REDUCTIONS)}")
    if not prod(updates.shape):
        return
    if reduction == "none":
        result[where] = updates
    else:
        _REDUCTIONS[reduction].at(result, where, updates)


_REDUCTIONS: Mapping[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
SCATTER_REDUCTIONS = ("none", *_REDUCTIONS)
"""Values of the attribute `reduction` of ScatterElements and ScatterND."""


# Conversion


def cast(call: OperatorCall) -> Array:
    """Compute Cast: the elements in the type that the attribute `to` names."""
    return convert(call, call.input(0), onnx_dtype(int(call.attribute("to"))))


def cast_like(call: OperatorCall) -> Array:
    """Compute CastLike: the elements in the type of the second input."""
    return convert(call, call.input(0), call.input(1).dtype)


def convert(call: OperatorCall, src: Array, dtype: np.dtype[Any]) -> Array:
    """Return elements in another type.

    Floats become integers by truncation. Conversions to floats of 8 bits or fewer round, and saturate if the node
    states so.
    """
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
    result = call.destination(src.shape, dtype)
    np.copyto(result, src, casting="unsafe")
    return result


def _to_small_float(src: Array, dtype: np.dtype[Any], saturates: bool) -> Array:
    """Return elements rounded to a float of 8 bits or fewer; if it saturates, clip larger numbers."""
    values = src.astype(np.float32)
    if saturates:
        low, high = number_limits(dtype)
        values = np.where(np.isnan(values), values, np.clip(values, low, high))
    return values.astype(dtype)


def _to_few_bits(src: Array, dtype: np.dtype[Any]) -> Array:
    """Return elements as integers of 4 or 2 bits, which wrap as wider ones do."""
    low, high = (int(limit) for limit in number_limits(dtype))
    whole = src.astype(np.float32) if src.dtype.kind == "V" else src
    with np.errstate(all="ignore"):
        numbers = whole.astype(np.int64)
    return ((numbers - low) % (high - low + 1) + low).astype(np.int8).astype(dtype)


# Pow


def power(call: OperatorCall) -> Array:
    """Compute Pow: x to the power of y, in the type of x.

    An integer to a negative power is truncated, so 2 to the power of -1 is 0.
    """
    base, exponent = call.input(0), call.input(1)
    if is_float(base.dtype) or (not is_float(exponent.dtype) and not (exponent < 0).any()):
        working = np.result_type(base.dtype, np.float32) if base.dtype.kind in "V" else base.dtype
        other = exponent.astype(np.float32) if exponent.dtype.kind == "V" else exponent
        if is_float(base.dtype) and exponent.dtype.kind != "f":
            other = other.astype(working)
        return np.asarray(np.power(base.astype(working), other).astype(base.dtype))
    info = np.iinfo(base.dtype)
    result = np.power(base.astype(np.float64), exponent.astype(np.float64))
    high = np.nextafter(info.max, 0.0) if base.dtype.itemsize == 8 else float(info.max)
    within = np.clip(np.nan_to_num(result, nan=0.0, posinf=high, neginf=float(info.min)), info.min, high)
    return np.asarray(within.astype(base.dtype))


# Quantization
_F32 = np.dtype(np.float32)


def dequantize_linear(call: OperatorCall) -> Array:
    """Compute DequantizeLinear: (x - zero point) * scale in f32.

    The result has the type of the scale, or the type that `output_dtype` names.
    """
    src, scale = call.input(0), call.input(1)
    zero = call.optional(2)
    if zero is not None and zero.dtype != src.dtype:
        raise call.invalid(f"its zero point is {zero.dtype}, and x is {src.dtype}: they must be the same")
    working = _F32 if is_float(src.dtype) else np.dtype(np.int64)
    shifted = src.astype(working)
    if zero is not None:
        shifted = shifted - _broadcast_parameter(call, zero, src.shape).astype(working)
    result = shifted.astype(_F32) * _broadcast_parameter(call, scale, src.shape).astype(_F32)
    code = int(call.attribute("output_dtype", 0))
    return result.astype(onnx_dtype(code) if code else scale.dtype)


def quantize_linear(call: OperatorCall) -> Array:
    """Compute QuantizeLinear: round(x / scale) + zero point, saturated; halves are rounded to even."""
    src, scale = call.input(0), call.input(1)
    zero, code = call.optional(2), int(call.attribute("output_dtype", 0))
    dtype = zero.dtype if zero is not None else onnx_dtype(code) if code else np.dtype(np.uint8)
    precision = int(call.attribute("precision", 0))
    working = onnx_dtype(precision) if precision else _F32
    quotient = (src.astype(working) / _broadcast_parameter(call, scale, src.shape).astype(working)).astype(_F32)
    if is_float(dtype):
        if zero is not None:
            quotient = quotient + _broadcast_parameter(call, zero, src.shape).astype(_F32)
        return _to_small_float(quotient, dtype, bool(call.attribute("saturate", 1)) or not _has_nan(dtype))
    whole = np.rint(quotient)
    if zero is not None:
        whole = whole + _broadcast_parameter(call, zero, src.shape).astype(_F32)
    low, high = number_limits(dtype)
    within = np.clip(np.nan_to_num(whole, nan=0.0, posinf=high, neginf=low), low, high)
    return np.asarray(within.astype(np.int32).astype(dtype))


def _has_nan(dtype: np.dtype[Any]) -> bool:
    """Return whether a float type has NaN."""
    return bool(np.isnan(np.float32(np.nan).astype(dtype).astype(np.float32)))


def _broadcast_parameter(call: OperatorCall, parameter: Array, dims: tuple[int, ...]) -> Array:
    """Return a scale or zero point for each element.

    The parameter is one number, a vector along `axis`, or has one number for each block of `axis`.
    """
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


DATA_MOVEMENT: Mapping[str, Callable[[OperatorCall], Array]] = {
    "Cast": cast,
    "CastLike": cast_like,
    "DequantizeLinear": dequantize_linear,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Pad": pad,
    "Pow": power,
    "QuantizeLinear": quantize_linear,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Slice": take_slice,
    "Unsqueeze": unsqueeze,
}
"""Function of each operator that moves or converts elements."""
