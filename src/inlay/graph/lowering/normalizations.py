"""Normalizations, softmax, and reductions.

Layer normalization over several axes flattens them, as softmax does before opset 13. Group and instance normalization
are layer normalizations too: what a group of channels of an image holds is a row. They have a scale and a shift for
each channel, before opset 21 for each group; these differ within rows, so that a product and a sum follow. oneDNN's
group normalization, which is there since 3.3, takes twice as long as that, and batch normalization of one image with
the channels of all two to ten times.

Reductions are of axes that become one element, and vanish where they are not kept. The mean or the greatest over all of
space is a pooling whose window is the image: it is fast in every format, a reduction only where these axes are the last
in memory. Axes of length 1 have nothing to reduce.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.lowering.elementwise import binary, eltwise
from inlay.graph.lowering.spatial import MOST_SPATIAL_AXES, whole_image
from inlay.layout import Dims

_EPSILON = float(np.float32(1e-5))
_MOST_AXES = 5


# Normalizations


def batch_normalization(draft: Draft) -> Operand:
    """(src - mean) / sqrt(variance + epsilon) * scale + shift, with statistics that are given."""
    is_trained = draft.attribute("training_mode", 0) or any(draft.wants(index) for index in range(1, 5))
    require(not is_trained, "it computes statistics, as in training")
    require(draft.attribute("spatial", 1) == 1, "its statistics differ in space")
    src = draft.source(0)
    dims = draft.dims(src)
    require(1 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 2 to {_MOST_AXES}")
    names = ("src", "scale", "shift", "mean", "variance")
    operands = {name: draft.operand(index) for index, name in enumerate(names)}
    flags = frozenset({"use_global_stats", "use_scale", "use_shift"})
    return draft.put("batch_normalization", operands, dims, epsilon=_epsilon(draft), flags=flags)


def _epsilon(draft: Draft) -> float:
    return float(draft.attribute("epsilon", _EPSILON))


def layer_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over the last axes."""
    require(not (draft.wants(1) or draft.wants(2)), "its statistics are asked for")
    return _over_last(draft, ("scale", "shift"), frozenset())


def rms_normalization(draft: Draft) -> Operand:
    """Mean square 1 over the last axes."""
    return _over_last(draft, ("scale",), frozenset({"rms_norm"}))


def _over_last(draft: Draft, names: tuple[str, ...], flags: frozenset[str]) -> Operand:
    """A layer normalization of the axes from the attribute `axis` on, as one."""
    require(draft.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    src = draft.source(0)
    dims = draft.dims(src)
    axis = draft.attribute("axis", -1) % len(dims)
    columns = prod(dims[axis:])
    rows = dims[:axis] if 0 < axis <= _MOST_AXES - 1 else (prod(dims[:axis]),)
    operands: dict[str, Operand] = {"src": draft.reshaped(src, (*rows, columns))}
    for index, name in enumerate(names, 1):
        if draft.given(index):
            operands[name] = _spread(draft, draft.operand(index), dims[axis:])
            flags |= {f"use_{name}"}
    result = draft.put("layer_normalization", operands, (*rows, columns), epsilon=_epsilon(draft), flags=flags)
    return draft.reshaped(result, dims)


def _spread(draft: Draft, operand: Operand, dims: Dims) -> Operand:
    """A scale or shift of `dims`, flat."""
    if not isinstance(operand, str):
        require(operand.ndim <= len(dims), "its scale has more axes than are normalized")
        return np.ascontiguousarray(np.broadcast_to(operand, dims)).reshape(-1)
    require(prod(draft.dims(operand)) == prod(dims), "its scale is spread")
    return draft.reshaped(operand, (prod(dims),))


def group_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over each group of channels of each image."""
    require(draft.attribute("stash_type", 1) == 1, "its statistics are of another type than float32")
    groups = draft.attribute("num_groups")
    return _of_rows(draft, groups, draft.dims(draft.source(0))[1] if draft.opset >= 21 else groups)


def instance_normalization(draft: Draft) -> Operand:
    """Mean 0 and variance 1 over each channel of each image."""
    channels = draft.dims(draft.source(0))[1]
    return _of_rows(draft, channels, channels)


def _of_rows(draft: Draft, groups: int, scales: int) -> Operand:
    """Each of `groups` groups of channels normalized; then each of `scales` groups scaled and shifted."""
    src = draft.source(0)
    dims = draft.dims(src)
    rows = (dims[0] * groups, prod(dims[1:]) // groups)
    source = draft.reshaped(src, rows)
    normal = draft.put("layer_normalization", {"src": source}, rows, epsilon=_epsilon(draft), flags=frozenset())
    scaled = dims if scales == dims[1] else (dims[0], scales, prod(dims[1:]) // scales)
    result = draft.reshaped(normal, scaled)
    for index, algorithm, nothing in ((1, "mul", 1), (2, "add", 0)):
        operand = draft.operand(index)
        if isinstance(operand, str) or (operand != nothing).any():
            spread = draft.reshaped(operand, (1, scales, *(1,) * (len(scaled) - 2)))
            result = binary(draft, algorithm, result, spread, scaled)
    return draft.reshaped(result, dims)


def local_response(draft: Draft) -> Operand:
    """src / (bias + alpha / size * sum of squares over `size` channels)^beta."""
    src, size = draft.source(0), draft.attribute("size")
    dims = draft.dims(src)
    require(2 < len(dims) <= _MOST_AXES, f"it has {len(dims)} axes, the primitive has 3 to {_MOST_AXES}")
    require(size % 2 == 1, f"its window of {size} channels has no middle")
    alpha, beta = draft.attribute("alpha", float(np.float32(1e-4))), draft.attribute("beta", 0.75)
    numbers = {"local_size": size, "alpha": alpha, "beta": beta, "k": float(draft.attribute("bias", 1.0))}
    return draft.put("lrn", {"src": src}, dims, algorithm="across_channels", **numbers)


def softmax(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of softmax or its logarithm: along one axis, or before opset 13 over all from it on."""

    def rule(draft: Draft) -> Operand:
        src = draft.source(0)
        dims = draft.dims(src)
        axis = draft.attribute("axis", -1 if draft.opset >= 13 else 1) % len(dims)
        if draft.opset >= 13 or prod(dims[axis + 1 :]) == 1:
            return draft.put("softmax", {"src": src}, dims, algorithm=algorithm, axis=axis)
        rows = (prod(dims[:axis]), prod(dims[axis:]))
        flat = draft.reshaped(src, rows)
        return draft.reshaped(draft.put("softmax", {"src": flat}, rows, algorithm=algorithm, axis=1), dims)

    return rule


# Reductions


@dataclass(frozen=True, slots=True)
class _LoweredReduction:
    """How an operator is computed."""

    algorithm: str
    """Of the reduction."""
    p: float = 0.0
    """Power of a norm."""
    pooling: str = ""
    """The pooling that does the same over space, if there is one."""
    alone: str = ""
    """The function of one element that it is, if it is not the element itself."""
    inputs_since: int = 18
    """From which opset on axes are an input."""


_REDUCTIONS = {
    "ReduceL1": _LoweredReduction("norm_lp_sum", p=1.0, alone="abs"),
    "ReduceL2": _LoweredReduction("norm_lp_sum", p=2.0, alone="abs"),
    "ReduceMax": _LoweredReduction("max", pooling="max"),
    "ReduceMean": _LoweredReduction("mean", pooling="avg_include_padding"),
    "ReduceMin": _LoweredReduction("min"),
    "ReduceProd": _LoweredReduction("mul"),
    "ReduceSum": _LoweredReduction("sum", inputs_since=13),
    "ReduceSumSquare": _LoweredReduction("norm_lp_power_p_sum", p=2.0, alone="square"),
}


def _rule(reduction: _LoweredReduction) -> Callable[[Draft], Operand]:
    def rule(draft: Draft) -> Operand:
        src = draft.source(0)
        dims = draft.dims(src)
        axes = _axes(draft, reduction, len(dims))
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(dims))
        return draft.reshaped(_reduced(draft, src, reduction, axes, kept), draft.result().dims)

    return rule


def _reduced(draft: Draft, src: str, reduction: _LoweredReduction, axes: frozenset[int], kept: Dims) -> Operand:
    dims = draft.dims(src)
    if kept == dims:
        return eltwise(draft, src, reduction.alone) if reduction.alone else src
    if reduction.pooling and len(dims) <= 2 + MOST_SPATIAL_AXES and axes == frozenset(range(2, len(dims))):
        return whole_image(draft, src, reduction.pooling)
    return draft.put("reduction", {"src": src}, kept, algorithm=reduction.algorithm, p=reduction.p, eps=0.0)


def _axes(draft: Draft, reduction: _LoweredReduction, count: int) -> frozenset[int]:
    """Which axes are reduced: those that are said, or all."""
    said = draft.numbers("axes", 1, reduction.inputs_since, "list of axes")
    if not said and draft.attribute("noop_with_empty_axes", 0):
        return frozenset()
    return frozenset(axis % count for axis in said) or frozenset(range(count))


NORMALIZATIONS: Mapping[str, Callable[[Draft], Operand]] = {
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
"""The rule of each operator."""
