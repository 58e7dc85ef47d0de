"""Functions of operators that change dims, or move all elements of a tensor without changing them.

- **Dims**: Shape, Size, Reshape, Flatten, Squeeze. - **Order**: Transpose, DepthToSpace, SpaceToDepth,
ReverseSequence. - **Number of elements**: Expand, Tile, Concat, Split, CenterCropPad, Trilu, TensorScatter. - **New
tensors**: ConstantOfShape, EyeLike, Range. - **Bits**: BitCast.

Each function supports every type of element. It returns a view of its input where NumPy can describe the result so.

Source: ONNX, "Operators".
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, isfinite, prod
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, is_float, onnx_dtype
from inlay.graph.op_graph import Array

# Dims


def shape(call: OperatorCall) -> Array:
    """Compute Shape: the dims of a tensor, or those from axis `start` to axis `end`, which are clamped."""
    dims = call.input(0).shape
    return np.array(dims[call.attribute("start", 0) : call.attribute("end")], np.int64)


def size(call: OperatorCall) -> Array:
    """Compute Size: the number of elements."""
    return np.array(call.input(0).size, np.int64)


def reshape(call: OperatorCall) -> Array:
    """Compute Reshape: the same elements in other dims; -1 stands for what is left, 0 for the dim of the input."""
    src, named = call.input(0), _integers(call, 1)
    dims, allows_zero = list(named), bool(call.attribute("allowzero", 0))
    if not allows_zero and any(n == 0 and axis >= src.ndim for axis, n in enumerate(dims)):
        raise call.invalid(f"dims {named} copy an axis that dims {src.shape} do not have")
    if not allows_zero:
        dims = [src.shape[axis] if n == 0 else n for axis, n in enumerate(dims)]
    if dims.count(-1) > 1 or min(dims, default=0) < -1:
        raise call.invalid(f"dims {named} have several unknown extents, or a negative one")
    if -1 in dims:
        known = prod(n for n in dims if n != -1)
        if not known or src.size % known:
            raise call.invalid(f"{src.size} elements do not determine the unknown extent of dims {named}")
        dims[dims.index(-1)] = src.size // known
    if prod(dims) != src.size:
        raise call.invalid(f"{src.size} elements do not fit dims {tuple(dims)}")
    return src.reshape(dims)


def flatten(call: OperatorCall) -> Array:
    """Compute Flatten: a matrix, whose rows are the axes before `axis`."""
    src, axis = call.input(0), int(call.attribute("axis", 1))
    if not -src.ndim <= axis <= src.ndim:
        raise call.invalid(f"axis {axis} is not within {src.ndim} axes")
    axis = axis + src.ndim if axis < 0 else axis
    return src.reshape(prod(src.shape[:axis]), prod(src.shape[axis:]))


def squeeze(call: OperatorCall) -> Array:
    """Compute Squeeze: remove axes of length 1, all of them if the node names none."""
    src, named = call.input(0), call.integers("axes", 1, 13)
    if named is None:
        return np.squeeze(src)
    axes = tuple({call.axis(axis, src.ndim) for axis in named})
    if any(src.shape[axis] != 1 for axis in axes):
        raise call.invalid(f"axes {named} of dims {src.shape} are not all of length 1")
    return np.squeeze(src, axes)


# Order


def transpose(call: OperatorCall) -> Array:
    """Compute Transpose: the axes in the order `perm`, or reversed if the node states none."""
    src, perm = call.input(0), call.attribute("perm")
    if perm is not None and sorted(perm) != list(range(src.ndim)):
        raise call.invalid(f"perm {list(perm)} is no order of {src.ndim} axes")
    return src.transpose(perm)


def depth_to_space(call: OperatorCall) -> Array:
    """Compute DepthToSpace: channels become blocks of space."""
    src, block = _image(call)
    batch, channels, height, width = src.shape
    rest = channels // block**2
    if channels != rest * block**2:
        raise call.invalid(f"{channels} channels are not a multiple of blocks of {block} by {block}")
    if call.attribute("mode", "DCR") == "DCR":
        blocks, perm = (block, block, rest), (0, 3, 4, 1, 5, 2)
    else:
        blocks, perm = (rest, block, block), (0, 1, 4, 2, 5, 3)
    split_axes = src.reshape(batch, *blocks, height, width)
    return split_axes.transpose(perm).reshape(batch, rest, height * block, width * block)


def space_to_depth(call: OperatorCall) -> Array:
    """Compute SpaceToDepth: blocks of space become channels."""
    src, block = _image(call)
    batch, channels, height, width = src.shape
    if height % block or width % block:
        raise call.invalid(f"height {height} and width {width} are not multiples of blocksize {block}")
    split_axes = src.reshape(batch, channels, height // block, block, width // block, block)
    perm = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return split_axes.transpose(perm).reshape(batch, channels * block**2, height // block, width // block)


def _image(call: OperatorCall) -> tuple[Array, int]:
    """Return the first input, which has four axes, and the size of blocks."""
    src, block, mode = call.input(0), int(call.attribute("blocksize", 0)), call.attribute("mode", "DCR")
    if src.ndim != 4 or block < 1:
        raise call.invalid(f"blocksize {block} needs to be positive, and dims {src.shape} need four axes")
    if mode not in ("DCR", "CRD"):
        raise call.invalid(f"mode {mode!r} is none of DCR, CRD")
    return src, block


def reverse_sequence(call: OperatorCall) -> Array:
    """Compute ReverseSequence: the first elements of each sequence in reverse order, as many as its length."""
    src, lengths = call.input(0), call.input(1).reshape(-1)
    batch, time = (call.axis(call.attribute(f"{name}_axis", n), src.ndim) for name, n in (("batch", 1), ("time", 0)))
    if {batch, time} != {0, 1}:
        raise call.invalid(f"batch_axis {batch} and time_axis {time} are not 0 and 1")
    count = src.shape[time]
    if lengths.size != src.shape[batch] or (lengths < 0).any() or (lengths > count).any():
        raise call.invalid(
            f"lengths {lengths.tolist()[:8]} do not fit {src.shape[batch]} sequences of {count} elements"
        )
    moved, steps = np.moveaxis(src, (batch, time), (0, 1)), np.arange(count)
    indices = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    return np.moveaxis(moved[np.arange(lengths.size)[:, None], indices], (0, 1), (batch, time))


# Number of elements


def expand(call: OperatorCall) -> Array:
    """Compute Expand: the tensor broadcast with these dims; a dim of 1 keeps that of the input."""
    src, dims = call.input(0), _integers(call, 1)
    if min(dims, default=0) < 0:
        raise call.invalid(f"dims {dims} are negative")
    count = max(src.ndim, len(dims))
    pairs = list(zip(_padded(src.shape, count), _padded(dims, count), strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise call.invalid(f"dims {src.shape} cannot be broadcast with {tuple(dims)}")
    return np.broadcast_to(src, tuple(b if a == 1 else a for a, b in pairs))


def _padded(dims: Sequence[int], count: int) -> tuple[int, ...]:
    """Return dims with leading dims of 1, so that there are `count`."""
    return (1,) * (count - len(dims)) + tuple(dims)


def tile(call: OperatorCall) -> Array:
    """Compute Tile: the tensor repeated along each axis."""
    src, repeats = call.input(0), _integers(call, 1)
    if len(repeats) != src.ndim or min(repeats, default=0) < 0:
        raise call.invalid(f"repeats {repeats} do not fit {src.ndim} axes")
    paired = src.reshape([m for n in src.shape for m in (1, n)])
    dims = [m for n, times in zip(src.shape, repeats, strict=True) for m in (times, n)]
    return np.broadcast_to(paired, dims).reshape([n * times for n, times in zip(src.shape, repeats, strict=True)])


def concat(call: OperatorCall) -> Array:
    """Compute Concat: tensors one after another along an axis."""
    parts = [call.input(index) for index in range(len(call.inputs))]
    axis = call.axis(int(call.attribute("axis", 1)), parts[0].ndim)
    first = parts[0].shape
    for part in parts:
        if part.ndim != len(first) or any(
            n != m for i, (n, m) in enumerate(zip(part.shape, first, strict=True)) if i != axis
        ):
            raise call.invalid(f"dims {first} and {part.shape} differ in other axes than {axis}")
    return np.concatenate(parts, axis)


def split(call: OperatorCall) -> tuple[Array, ...]:
    """Compute Split: parts of an axis, with the lengths that the node states, or of equal lengths."""
    src, sizes = call.input(0), call.integers("split", 1, 13)
    axis, count = call.axis(int(call.attribute("axis", 0)), src.ndim), len(call.node.outputs)
    extent = src.shape[axis]
    if sizes is None:
        sizes = _equal_sizes(call, extent, count)
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 0:
        raise call.invalid(f"sizes {sizes} of {count} parts do not fit the {extent} elements of axis {axis}")
    ends = np.cumsum(sizes).tolist()
    lead = (slice(None),) * axis
    return tuple(src[(*lead, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True))


def _equal_sizes(call: OperatorCall, extent: int, count: int) -> list[int]:
    """Return the sizes of parts of equal length; from opset 18 on, the last part may be shorter."""
    if call.opset < 18:
        if extent % count:
            raise call.invalid(f"{extent} elements cannot be split into {count} equal parts")
        return [extent // count] * count
    stated = int(call.attribute("num_outputs", count))
    if stated != count:
        raise call.invalid(f"num_outputs is {stated}, and the node has {count} results")
    part = ceil(extent / count)
    return [part] * (count - 1) + [extent - part * (count - 1)]


def center_crop_pad(call: OperatorCall) -> Array:
    """Compute CenterCropPad: the middle of each axis, or the axis between zeros."""
    src, dims, named = call.input(0), _integers(call, 1), call.attribute("axes")
    axes = list(range(src.ndim)) if named is None else [call.axis(int(axis), src.ndim) for axis in named]
    if len(axes) != len(dims) or min(dims, default=0) < 0:
        raise call.invalid(f"dims {dims} do not fit the axes {axes}")
    extents, cut, place = list(src.shape), [slice(None)] * src.ndim, [slice(None)] * src.ndim
    for axis, n in zip(axes, dims, strict=True):
        before, extents[axis] = src.shape[axis], n
        kept = min(n, before)
        cut[axis] = slice((before - kept) // 2, (before - kept) // 2 + kept)
        place[axis] = slice((n - kept) // 2, (n - kept) // 2 + kept)
    if all(n <= before for n, before in zip(extents, src.shape, strict=True)):
        return src[tuple(cut)]
    result = np.zeros(extents, src.dtype)
    result[tuple(place)] = src[tuple(cut)]
    return result


def trilu(call: OperatorCall) -> Array:
    """Compute Trilu: the upper or lower triangle of matrices, relative to diagonal `k`; other elements are 0."""
    src = call.input(0)
    if src.ndim < 2:
        raise call.invalid(f"dims {src.shape} are those of no matrix")
    rows, columns = src.shape[-2:]
    k = min(max(_number(call, 1, 0), -rows), columns)
    distances = np.arange(columns) - np.arange(rows)[:, None]
    is_kept = distances >= k if call.attribute("upper", 1) else distances <= k
    return np.where(is_kept, src, np.zeros((), src.dtype))


def tensor_scatter(call: OperatorCall) -> Array:
    """Compute TensorScatter: a cache with the elements of an update, from an index of each batch element on."""
    cache, update, mode = call.input(0), call.input(1), call.attribute("mode", "linear")
    axis = call.axis(int(call.attribute("axis", -2)), cache.ndim)
    starts = call.optional(2)
    starts = np.zeros(cache.shape[0], np.int64) if starts is None else starts.reshape(-1)
    expected = (*cache.shape[:axis], update.shape[axis] if update.ndim == cache.ndim else 0, *cache.shape[axis + 1 :])
    if axis == 0 or mode not in ("linear", "circular") or update.shape != expected or starts.size != cache.shape[0]:
        raise call.invalid(
            f"axis {axis}, mode {mode!r}, an update of dims {update.shape} and {starts.size} indices do not fit a "
            f"cache of dims {cache.shape}"
        )
    extent = cache.shape[axis]
    indices = starts[:, None] + np.arange(update.shape[axis])
    indices = indices % max(extent, 1) if mode == "circular" else indices
    if update.shape[axis] > extent or (indices < 0).any() or (indices >= extent).any():
        raise call.invalid(
            f"{update.shape[axis]} elements from {starts.tolist()[:8]} on exceed axis {axis}, which has {extent}"
        )
    result = cache.copy()
    np.moveaxis(result, axis, 1)[np.arange(starts.size)[:, None], indices] = np.moveaxis(update, axis, 1)
    return result


# New tensors


def constant_of_shape(call: OperatorCall) -> Array:
    """Compute ConstantOfShape: a tensor of one number, 0 in f32 unless the node states another."""
    dims, value = _integers(call, 0), np.asarray(call.attribute("value", np.zeros(1, np.float32)))
    if value.size != 1 or min(dims, default=0) < 0:
        raise call.invalid(f"{value.size} values cannot fill dims {dims}: give one value, and no negative dims")
    return np.full(dims, value.reshape(()), value.dtype)


def eye_like(call: OperatorCall) -> Array:
    """Compute EyeLike: a matrix with ones on diagonal `k`, in the dims of the input."""
    src, code = call.input(0), int(call.attribute("dtype", 0))
    if src.ndim != 2:
        raise call.invalid(f"dims {src.shape} are those of no matrix")
    rows, columns = src.shape
    k = min(max(int(call.attribute("k", 0)), -rows), columns)
    is_one = np.arange(columns) - np.arange(rows)[:, None] == k
    return np.asarray(is_one, onnx_dtype(code) if code else src.dtype)


def arithmetic_sequence(call: OperatorCall) -> Array:
    """Compute Range: numbers from a start up to a limit, in steps of `delta`."""
    dtype, wrong = call.input(0).dtype, [index for index in range(3) if call.input(index).size != 1]
    if wrong:
        raise call.invalid(f"input {wrong[0]} has dims {call.input(wrong[0]).shape}, and must be one number")
    is_stashed = dtype.itemsize < 4 and is_float(dtype) and int(call.attribute("stash_type", 1)) == 1
    working = np.dtype(np.float32) if is_stashed else dtype
    start, limit, delta = (call.input(index).astype(working).reshape(()) for index in range(3))
    if delta == 0:
        raise call.invalid("delta is 0")
    if not is_float(dtype):
        return np.arange(int(start), int(limit), int(delta), dtype=np.int64).astype(dtype)
    if not all(isfinite(number) for number in (start, limit, delta)):
        raise call.invalid(f"start {start}, limit {limit} and delta {delta} are not all finite")
    count = max(ceil(float(limit - start) / float(delta)), 0)
    return np.asarray(start + np.arange(count).astype(working) * delta, dtype)


# Bits


def bit_cast(call: OperatorCall) -> Array:
    """Compute BitCast: the bits of each element as those of a type that has as many."""
    src, dtype = call.input(0), onnx_dtype(int(call.attribute("to", 0)))
    widths = _bit_width(src.dtype), _bit_width(dtype)
    if widths[0] != widths[1]:
        raise call.invalid(f"{src.dtype} has {widths[0]} bits, and {dtype} has {widths[1]}: they must be the same")
    if dtype.kind == "b":  # any other bits than those of 0 and 1 are undefined in NumPy
        return np.asarray(src.view(np.uint8) != 0)
    if widths[0] == 8 * dtype.itemsize:
        return src.view(dtype)
    return (src.view(np.uint8) & np.uint8((1 << widths[0]) - 1)).view(dtype)


def _bit_width(dtype: np.dtype[Any]) -> int:
    """Return the bits of an element; NumPy stores those with fewer than 8 in a byte each."""
    return {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}.get(dtype.name, 8 * dtype.itemsize)


def _integers(call: OperatorCall, index: int) -> list[int]:
    """Return the elements of input `index` as integers."""
    return [int(n) for n in call.input(index).reshape(-1)]


def _number(call: OperatorCall, index: int, default: int) -> int:
    """Return the one element of input `index`, or `default` if it is left out."""
    array = call.optional(index)
    if array is None:
        return default
    if array.size != 1:
        raise call.invalid(f"input {index} has dims {array.shape}, and must be one number")
    return int(array.reshape(())[()])


SHAPES: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "BitCast": bit_cast,
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Range": arithmetic_sequence,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Shape": shape,
    "Size": size,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
}
"""Function of each operator that changes dims or moves whole tensors."""
