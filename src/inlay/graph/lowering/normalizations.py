"""Lowering rules of normalizations, softmax and reductions.

LayerNormalization over several axes flattens them to one; so does Softmax before opset 13.

GroupNormalization and InstanceNormalization are layer normalizations, too: a row consists of the elements of one group
of channels of one image. Their scale and shift differ within such a row, as there is one for each channel (before opset
21: for each group). So they become a product and a sum after the primitive. oneDNN has had a group normalization since
3.3, but it takes twice as long as these operations. A batch normalization of one image, with the channels of all
images, takes two to ten times as long.

Reduced axes get length 1, and a view removes them if the node does not keep them. The mean or maximum over all spatial
axes becomes a pooling with the image as its window. Pooling is fast in every format, but reduction only if the reduced
axes are the last of all, in row-major order. Over other axes a sum or mean becomes a product with a row of equal
factors, unless they would be too many, a maximum a pooling of a transposed view, and the rest a reduction of a
transposed view, which a reorder makes row-major. Axes of length 1 need no reduction. oneDNN has no machine code for
norms, so they become a sum of magnitudes or squares.

LRN reads an image of two spatial axes, for which alone oneDNN has machine code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.graph.broadcast_patterns import merge_axes
from inlay.graph.lowering.broadcasting import emit_binary
from inlay.graph.lowering.context import LoweringContext, Operand, require
from inlay.graph.lowering.elementwise import emit_eltwise
from inlay.graph.lowering.spatial import MOST_SPATIAL_AXES, emit_global_pooling
from inlay.layout import Dims

_EPSILON = float(np.float32(1e-5))
_MOST_AXES = 5
_MOST_FACTORS = 1 << 24
"""Limit on the extent of an axis that a product with a row of equal factors reduces."""


# Normalizations


def batch_normalization(context: LoweringContext) -> Operand:
    """Lower BatchNormalization with constant or computed statistics that are inputs.

    (src - mean) / sqrt(variance + epsilon) * scale + shift
    """
    is_trained = context.attribute("training_mode", 0) or any(context.is_output_used(index) for index in range(1, 5))
    require(not is_trained, "it computes statistics, as in training")
    require(context.attribute("spatial", 1) == 1, "its statistics differ in space")
    src = context.source(0)
    dims = context.dims(src)
    require(1 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 2 to {_MOST_AXES}")
    names = ("src", "scale", "shift", "mean", "variance")
    operands = {name: context.operand(index) for index, name in enumerate(names)}
    flags = frozenset({"use_global_stats", "use_scale", "use_shift"})
    return context.emit("batch_normalization", operands, dims, epsilon=_epsilon(context), flags=flags)


def _epsilon(context: LoweringContext) -> float:
    """Return the attribute epsilon."""
    return float(context.attribute("epsilon", _EPSILON))


def layer_normalization(context: LoweringContext) -> tuple[Operand | None, ...]:
    """Lower LayerNormalization: mean 0 and variance 1 over the last axes.

    If its mean or the inverse of its standard deviation is used, reductions compute these.
    """
    result = _normalize_last_axes(context, ("scale", "shift"))
    if not (context.is_output_used(1) or context.is_output_used(2)):
        return (result,)
    src = context.source(0)
    dims = context.dims(src)
    axis = context.attribute("axis", -1) % len(dims)
    rows, columns = prod(dims[:axis]), prod(dims[axis:])
    matrix = context.reshape(src, (rows, columns))
    mean = _mean_of_rows(context, matrix)
    squares = emit_eltwise(context, emit_binary(context, "sub", matrix, mean, (rows, columns)), "square")
    deviation = emit_eltwise(context, _mean_of_rows(context, squares), "linear", 1.0, _epsilon(context))
    statistics = mean, emit_eltwise(context, deviation, "pow", 1.0, -0.5)
    return result, *(context.reshape(one, (*dims[:axis], *(1,) * len(dims[axis:]))) for one in statistics)


def _mean_of_rows(context: LoweringContext, matrix: Operand) -> Operand:
    """Return the mean of each row of a matrix, with an axis of extent 1."""
    rows, columns = context.dims(matrix)
    return matrix if columns == 1 else emit_reduction(context, matrix, "mean", (rows, 1))


def rms_normalization(context: LoweringContext) -> Operand:
    """Lower RMSNormalization: mean square 1 over the last axes.

    It becomes the mean of the squares, and a layer normalization with that variance and mean 0. oneDNN's own root mean
    square normalization is not used: 3.2 has none.
    """
    require(context.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    src = context.source(0)
    dims = context.dims(src)
    axis = context.attribute("axis", -1) % len(dims)
    rows, columns = prod(dims[:axis]), prod(dims[axis:])
    matrix = context.reshape(src, (rows, columns))
    squares = emit_eltwise(context, matrix, "square")
    mean_square = _mean_of_rows(context, squares)
    statistics = {"mean": np.zeros(rows, np.float32), "variance": context.reshape(mean_square, (rows,))}
    operands: dict[str, Operand] = {"src": matrix, **statistics}
    flags = {"use_global_stats"}
    if context.has_input(1):
        operands["scale"] = _flatten_parameter(context, context.operand(1), dims[axis:])
        flags.add("use_scale")
    epsilon, matrix_dims = _epsilon(context), (rows, columns)
    result = context.emit("layer_normalization", operands, matrix_dims, epsilon=epsilon, flags=frozenset(flags))
    return context.reshape(result, dims)


def _normalize_last_axes(context: LoweringContext, names: tuple[str, ...]) -> Operand:
    """Emit a layer normalization of the axes from the attribute `axis` on, flattened to one.

    `names` are the arguments after src, in the order of the node's inputs.
    """
    require(context.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    src = context.source(0)
    dims = context.dims(src)
    axis = context.attribute("axis", -1) % len(dims)
    columns = prod(dims[axis:])
    rows = dims[:axis] if 0 < axis <= _MOST_AXES - 1 else (prod(dims[:axis]),)
    operands: dict[str, Operand] = {"src": context.reshape(src, (*rows, columns))}
    flags = frozenset[str]()
    for index, name in enumerate(names, 1):
        if context.has_input(index):
            operands[name] = _flatten_parameter(context, context.operand(index), dims[axis:])
            flags |= {f"use_{name}"}
    result = context.emit("layer_normalization", operands, (*rows, columns), epsilon=_epsilon(context), flags=flags)
    return context.reshape(result, dims)


def _flatten_parameter(context: LoweringContext, operand: Operand, dims: Dims) -> Operand:
    """Return a scale or shift, broadcast to `dims` and flattened."""
    if not isinstance(operand, str):
        require(operand.ndim <= len(dims), "its scale has more axes than are normalized")
        return np.ascontiguousarray(np.broadcast_to(operand, dims)).reshape(-1)
    require(prod(context.dims(operand)) == prod(dims), "its scale is broadcast")
    return context.reshape(operand, (prod(dims),))


def group_normalization(context: LoweringContext) -> Operand:
    """Lower GroupNormalization: mean 0 and variance 1 over each group of channels of each image."""
    require(context.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    groups = context.attribute("num_groups")
    return _normalize_groups(context, groups, context.dims(context.source(0))[1] if context.opset >= 21 else groups)


def instance_normalization(context: LoweringContext) -> Operand:
    """Lower InstanceNormalization: mean 0 and variance 1 over each channel of each image."""
    channels = context.dims(context.source(0))[1]
    return _normalize_groups(context, channels, channels)


def _normalize_groups(context: LoweringContext, groups: int, scales: int) -> Operand:
    """Emit a normalization of each of `groups` groups of channels; then scale and shift each of `scales` groups."""
    src = context.source(0)
    dims = context.dims(src)
    rows = (dims[0] * groups, prod(dims[1:]) // groups)
    source = context.reshape(src, rows)
    normal = context.emit("layer_normalization", {"src": source}, rows, epsilon=_epsilon(context), flags=frozenset())
    scaled = dims if scales == dims[1] else (dims[0], scales, prod(dims[1:]) // scales)
    result = context.reshape(normal, scaled)
    for index, algorithm, neutral in ((1, "mul", 1), (2, "add", 0)):
        operand = context.operand(index)
        if isinstance(operand, str) or (operand != neutral).any():
            parameter = context.reshape(operand, (1, scales, *(1,) * (len(scaled) - 2)))
            result = emit_binary(context, algorithm, result, parameter, scaled)
    return context.reshape(result, dims)


def local_response(context: LoweringContext) -> Operand:
    """Lower LRN: src / (bias + alpha / size * sum of squares over `size` channels)^beta."""
    src, size = context.source(0), context.attribute("size")
    dims = context.dims(src)
    require(2 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 3 to {_MOST_AXES}")
    require(size % 2 == 1, f"its window of {size} channels has no middle")
    alpha, beta = context.attribute("alpha", float(np.float32(1e-4))), context.attribute("beta", 0.75)
    numbers = {"local_size": size, "alpha": alpha, "beta": beta, "k": float(context.attribute("bias", 1.0))}
    image = (*dims[:2], prod(dims[2:-1]), dims[-1])
    result = context.emit("lrn", {"src": context.reshape(src, image)}, image, algorithm="across_channels", **numbers)
    return context.reshape(result, dims)


def softmax(algorithm: str) -> Callable[[LoweringContext], Operand]:
    """Return the rule of Softmax or LogSoftmax: along one axis, or before opset 13 over all axes from it on."""

    def rule(context: LoweringContext) -> Operand:
        src = context.source(0)
        dims = context.dims(src)
        axis = context.attribute("axis", -1 if context.opset >= 13 else 1) % len(dims)
        columns = dims[axis] if context.opset >= 13 else prod(dims[axis:])
        if columns == dims[axis] != 1:
            return context.emit("softmax", {"src": src}, dims, algorithm=algorithm, axis=axis)
        rows = (prod(dims) // columns, columns)
        flat = context.reshape(src, rows)
        return context.reshape(context.emit("softmax", {"src": flat}, rows, algorithm=algorithm, axis=1), dims)

    return rule


# Reductions


@dataclass(frozen=True, slots=True)
class _LoweredReduction:
    """Primitives that compute one of ONNX's reductions."""

    algorithm: str
    """Algorithm of the primitive reduction."""
    before: str = ""
    """Algorithm of eltwise that is applied to each element first; empty if there is none."""
    after: str = ""
    """Algorithm of eltwise that is applied to each result; empty if there is none."""
    pooling: str = ""
    """Algorithm of a pooling with the same result over all spatial axes; empty if there is none."""
    elementwise: str = ""
    """Algorithm of eltwise with the same result if no axis is reduced; empty if the result is the element itself."""
    inputs_since: int = 18
    """Opset from which on the axes are an input, not an attribute."""


_REDUCTIONS = {
    "ReduceL1": _LoweredReduction("sum", before="abs", elementwise="abs"),
    "ReduceL2": _LoweredReduction("sum", before="square", after="sqrt", elementwise="abs"),
    "ReduceMax": _LoweredReduction("max", pooling="max"),
    "ReduceMean": _LoweredReduction("mean", pooling="avg_include_padding"),
    "ReduceMin": _LoweredReduction("min"),
    "ReduceProd": _LoweredReduction("mul"),
    "ReduceSum": _LoweredReduction("sum", inputs_since=13),
    "ReduceSumSquare": _LoweredReduction("sum", before="square", elementwise="square"),
}


def _rule(reduction: _LoweredReduction) -> Callable[[LoweringContext], Operand]:
    """Return the rule of a reduction."""

    def rule(context: LoweringContext) -> Operand:
        src = context.source(0)
        dims = context.dims(src)
        axes = _axes(context, reduction, len(dims))
        reduced_dims = tuple(1 if axis in axes else n for axis, n in enumerate(dims))
        return context.reshape(_emit_reduction(context, src, reduction, axes, reduced_dims), context.output().dims)

    return rule


def _emit_reduction(
    context: LoweringContext, src: str, reduction: _LoweredReduction, axes: frozenset[int], reduced_dims: Dims
) -> Operand:
    """Emit a reduction of `axes` to the dims `reduced_dims`, as eltwise, pooling or reduction."""
    dims = context.dims(src)
    if reduced_dims == dims:
        return emit_eltwise(context, src, reduction.elementwise) if reduction.elementwise else src
    if reduction.pooling and len(dims) <= 2 + MOST_SPATIAL_AXES and axes == frozenset(range(2, len(dims))):
        return emit_global_pooling(context, src, reduction.pooling)
    source = emit_eltwise(context, src, reduction.before) if reduction.before else src
    result = emit_reduction(context, source, reduction.algorithm, reduced_dims)
    return emit_eltwise(context, result, reduction.after) if reduction.after else result


def emit_reduction(context: LoweringContext, src: Operand, algorithm: str, dims: Dims) -> str:
    """Emit a reduction of `src` to `dims`, which have extent 1 where an axis is reduced.

    Neighboring axes that are reduced are merged, and so are those that are not; then one axis after another is reduced,
    beginning with the last.
    """
    whole, reduced = merge_axes(context.dims(src), dims)
    result = context.reshape(src, whole)
    for axis in reversed(range(len(whole))):
        if whole[axis] != reduced[axis]:
            result = _reduce_axis(context, result, algorithm, axis)
    return str(context.reshape(result, dims))


def _reduce_axis(context: LoweringContext, src: Operand, algorithm: str, axis: int) -> Operand:
    """Emit a reduction of one axis; see the docstring of the module for the primitive of each algorithm."""
    dims = context.dims(src)
    reduced = (*dims[:axis], 1, *dims[axis + 1 :])
    outer, extent, inner = prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])
    if inner == 1:
        return _emit_primitive(context, src, algorithm, reduced)
    matrices = context.reshape(src, (outer, extent, inner))
    if algorithm in ("sum", "mean") and extent <= _MOST_FACTORS:
        factors = np.full((1, 1, extent), 1 if algorithm == "sum" else 1 / extent, np.float32)
        result = context.emit("matmul", {"src": factors, "weights": matrices}, (outer, 1, inner))
    else:
        rows = context.permute(matrices, (0, 2, 1))
        is_max = algorithm == "max"
        result = (
            emit_global_pooling(context, rows, "max")
            if is_max
            else _emit_primitive(context, rows, algorithm, (outer, inner, 1))
        )
    return context.reshape(result, reduced)


def _emit_primitive(context: LoweringContext, src: Operand, algorithm: str, dims: Dims) -> str:
    """Emit the primitive reduction of `src` to `dims`."""
    return context.emit("reduction", {"src": src}, dims, algorithm=algorithm, p=0.0, eps=0.0)


def _axes(context: LoweringContext, reduction: _LoweredReduction, count: int) -> frozenset[int]:
    """Return the axes that are reduced: those that the node names, or all."""
    axes = context.integers("axes", 1, reduction.inputs_since, "list of axes")
    if not axes and context.attribute("noop_with_empty_axes", 0):
        return frozenset()
    return frozenset(axis % count for axis in axes) or frozenset(range(count))


NORMALIZATIONS: Mapping[str, Callable[[LoweringContext], Operand | tuple[Operand | None, ...]]] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": softmax("log"),
    "RMSNormalization": rms_normalization,
    "Softmax": softmax("accurate"),
    **{name: _rule(reduction) for name, reduction in _REDUCTIONS.items()},
}
"""Rule of each normalization and reduction."""
